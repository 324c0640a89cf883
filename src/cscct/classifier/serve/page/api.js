// Requests to the server. Errors contain the message of the server.

const RETRY_DELAY = 700; // milliseconds, when the server is busy

async function send(method, path, body, read = (response) => response.json(), tries = 20) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { method, body, headers: jsonHeaders(body), credentials: "same-origin" });
  } catch {
    throw new Error("The server does not respond. Check that it is running.");
  }
  if (response.status === 503 && tries > 1) {
    await new Promise((done) => setTimeout(done, RETRY_DELAY));
    return send(method, path, body, read, tries - 1);
  }
  if (response.status === 401) location.assign("/login");
  if (!response.ok) throw new Error(await errorMessage(response));
  return response.status === 204 ? null : read(response);
}

const asBlob = (response) => response.blob();
const jsonHeaders = (body) => (typeof body === "string" ? { "Content-Type": "application/json" } : {});

async function errorMessage(response) {
  try {
    return (await response.json()).detail;
  } catch {
    return `The server responded with status ${response.status}.`;
  }
}

function form(file, fields = {}) {
  const data = new FormData();
  for (const [key, value] of Object.entries(fields)) data.append(key, value);
  data.append("images", file, file.name);
  return data;
}

export const api = {
  model: () => send("GET", "model"),
  map: () => send("GET", "map"),
  state: () => send("GET", "state"),
  staged: () => send("GET", "staged"),
  classify: async (file) => {
    const { version, answers } = await send("POST", "classify?top=9", form(file));
    return { version, answer: answers[0] };
  },
  explain: (file) => send("POST", "explain", form(file)),
  export: (format) => send("POST", "export", JSON.stringify({ format }), asBlob),
  queue: async () => (await send("GET", "queue")).photos,
  queued: (number) => send("GET", `queue/${number}`, undefined, asBlob),
  stage: async (file, label) => {
    const { revision, staged } = await send("POST", "staged", form(file, { label }));
    return { revision, photo: staged[0] };
  },
  unstage: (id) => send("DELETE", `staged/${id}`),
  clearStaged: () => send("DELETE", "staged"),
  learn: () => send("POST", "learn"),
  stop: () => send("DELETE", "job"),
  undo: () => send("POST", "undo"),
  forget: (label) => send("POST", "forget", JSON.stringify({ classes: [label] })),
  rename: (old, newName) => send("POST", "rename", JSON.stringify({ old, new: newName })),
  merge: (label, into) => send("POST", "merge", JSON.stringify({ classes: [label], into })),
  photos: (label, predicted, offset, limit) => send("GET", `photos?${new URLSearchParams({ label, predicted, offset, limit })}`),
  movePhotos: (ids, label) => send("POST", "photos/move", JSON.stringify({ ids, label })),
  removePhotos: (ids) => send("POST", "photos/remove", JSON.stringify({ ids })),
  keepPhotos: (ids) => send("POST", "photos/keep", JSON.stringify({ ids })),
  restore: (version) => send("POST", "restore", JSON.stringify({ version })),
};

/** Calls work for each item, two at a time, started in order. */
export async function each(items, work) {
  const queue = [...items];
  const worker = async () => {
    while (queue.length) await work(queue.shift());
  };
  await Promise.all([worker(), worker()]);
}
