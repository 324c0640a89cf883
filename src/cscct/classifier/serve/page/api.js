// Requests to the server. Errors carry the server's own sentence.

const PAUSE = 700; // milliseconds, when the server has too much to do

async function ask(method, path, body, tries = 20) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { method, body, headers: jsonHeaders(body), credentials: "same-origin" });
  } catch {
    throw new Error("The server does not answer. It may have been stopped.");
  }
  if (response.status === 503 && tries > 1) {
    await new Promise((done) => setTimeout(done, PAUSE));
    return ask(method, path, body, tries - 1);
  }
  if (response.status === 401) location.assign("/login");
  if (!response.ok) throw new Error(await reason(response));
  return response.status === 204 ? null : response.json();
}

const jsonHeaders = (body) => (typeof body === "string" ? { "Content-Type": "application/json" } : {});

async function reason(response) {
  try {
    return (await response.json()).detail;
  } catch {
    return `The server answers ${response.status}.`;
  }
}

function form(file, fields = {}) {
  const data = new FormData();
  for (const [key, value] of Object.entries(fields)) data.append(key, value);
  data.append("images", file, file.name);
  return data;
}

export const api = {
  model: () => ask("GET", "model"),
  map: () => ask("GET", "map"),
  staged: async () => (await ask("GET", "staged")).staged,
  job: () => ask("GET", "job"),
  classify: async (file) => (await ask("POST", "classify?top=5", form(file))).answers[0],
  stage: async (file, label) => (await ask("POST", "staged", form(file, { label }))).staged[0],
  unstage: (id) => ask("DELETE", `staged/${id}`),
  clearStaged: () => ask("DELETE", "staged"),
  learn: () => ask("POST", "learn"),
  stop: () => ask("DELETE", "job"),
  undo: () => ask("POST", "undo"),
  forget: (label) => ask("POST", "forget", JSON.stringify({ classes: [label] })),
  rename: (old, wanted) => ask("POST", "rename", JSON.stringify({ old, new: wanted })),
  restore: (version) => ask("POST", "restore", JSON.stringify({ version })),
};

/** Calls work for each item, two at a time, in order of beginning. */
export async function each(items, work) {
  const queue = [...items];
  const worker = async () => {
    while (queue.length) await work(queue.shift());
  };
  await Promise.all([worker(), worker()]);
}
