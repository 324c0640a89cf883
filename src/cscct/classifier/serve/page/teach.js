// Photographs for the next learning step, and the step itself.

import { api, each } from "./api.js";
import { announce, byId, el, name, plural, twice } from "./dom.js";
import { acceptFiles } from "./drop.js";

const SHOWN = 24; // thumbnails of a class
const POLL = 400; // milliseconds
let learning = false;

/** learned: called when a learning step has made a new version. */
export function setUpTeach(learned) {
  acceptFiles(byId("teach-zone"), byId("teach-files"), add);
  byId("teach-name").addEventListener("keydown", (event) => {
    if (event.key === "Enter") byId("teach-files").click();
  });
  twice(byId("staged-clear"), "Press again to remove all", async () => {
    await attempt(api.clearStaged);
    showStaged();
  });
  byId("learn").addEventListener("click", async () => {
    byId("job-end").hidden = true;
    if (await attempt(api.learn)) watch(learned);
  });
  twice(byId("stop"), "Press again to stop", () => attempt(api.stop));
  watch(learned, true);
}

async function attempt(action) {
  try {
    await action();
    problem("");
    return true;
  } catch (error) {
    problem(error.message);
    return false;
  }
}

function problem(text) {
  byId("teach-problem").textContent = text;
  byId("teach-problem").hidden = !text;
}

async function add(found) {
  const typed = byId("teach-name").value.trim();
  if (!typed && found.some(({ folder }) => !folder)) {
    problem("Name the class first, then add its photographs.");
    byId("teach-name").focus();
    return;
  }
  const refused = [];
  let done = 0;
  problem("");
  await each(found, async ({ file, folder }) => {
    try {
      await api.stage(file, typed && !folder ? typed : folder);
    } catch (error) {
      refused.push(error.message);
    }
    done += 1;
    byId("staged-empty").hidden = false;
    byId("staged-empty").textContent = `Adding ${done} of ${plural(found.length, "photograph")}…`;
  });
  byId("staged-empty").textContent = "No photographs wait.";
  const more = refused.length > 3 ? ` And ${refused.length - 3} more.` : "";
  problem(refused.slice(0, 3).join(" ") + more);
  announce(`${plural(found.length - refused.length, "photograph")} added.`);
  showStaged();
}

/** Fetches and shows what waits. */
export async function showStaged() {
  const staged = await api.staged();
  const groups = new Map();
  for (const one of staged) groups.set(one.label, [...(groups.get(one.label) ?? []), one]);
  byId("staged").replaceChildren(...[...groups].map(group));
  byId("staged-empty").hidden = staged.length > 0;
  byId("staged-clear").hidden = staged.length === 0 || learning;
  byId("learn").disabled = staged.length === 0 || learning;
  byId("learn").textContent = staged.length ? `Learn ${plural(staged.length, "photograph")}` : "Learn";
}

function group([label, photographs]) {
  const known = [...byId("class-names").options].some((option) => option.value === label);
  const title = el("h4", {}, name(label), el("span", { class: "quiet" }, ` ${plural(photographs.length, "photograph")}`), known ? "" : el("span", { class: "badge" }, "new"));
  const shown = photographs.slice(0, SHOWN).map(thumbnail);
  const more = photographs.length - shown.length;
  return el("div", { class: "group" }, title, el("ul", { class: "thumbs" }, ...shown, more > 0 ? el("li", { class: "quiet more" }, `+${more}`) : null));
}

function thumbnail(one) {
  const remove = el("button", { type: "button", class: "remove", "aria-label": `Remove ${one.filename} from ${one.label}` }, "×");
  remove.addEventListener("click", async () => {
    const next = remove.closest("li").nextElementSibling?.querySelector("button");
    const nextLabel = next?.getAttribute("aria-label");
    await attempt(() => api.unstage(one.id));
    await showStaged();
    announce(`${one.filename} removed.`);
    const again = [...document.querySelectorAll(".remove")].find((button) => button.getAttribute("aria-label") === nextLabel);
    (again ?? byId("teach-name")).focus(); // the button that was pressed is gone
  });
  return el("li", {}, el("img", { src: `/api/staged/${one.id}/thumbnail`, alt: one.filename, loading: "lazy" }), remove);
}

/** Follows the learning step until it ends. quietly: says nothing of a step that ended before the page was opened. */
async function watch(learned, quietly = false) {
  let said = "";
  for (;;) {
    const job = await api.job().catch((error) => ({ state: "failed", error: error.message }));
    if (job.state !== "running") {
      busy(false);
      if (!quietly) end(job, learned);
      return;
    }
    quietly = false;
    busy(true);
    byId("job-text").textContent = describe(job);
    const bar = byId("job-progress");
    if (job.total && job.done) {
      bar.max = job.total;
      bar.value = job.done;
    } else bar.removeAttribute("value");
    if (job.what !== said) announce((said = job.what));
    await new Promise((done) => setTimeout(done, POLL));
  }
}

function busy(yes) {
  learning = yes;
  byId("job").hidden = byId("stop").hidden = !yes;
  byId("learn").hidden = yes;
  if (yes) byId("staged-clear").hidden = true;
  byId("teach").classList.toggle("busy", yes);
}

function describe(job) {
  const text = job.what.charAt(0).toUpperCase() + job.what.slice(1);
  const count = job.done && job.total ? `: ${job.done} of ${job.total}` : "";
  const left = job.seconds_left == null ? "" : `, about ${duration(job.seconds_left)} left`;
  return text + count + left;
}

const duration = (seconds) => (seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`);

async function end(job, learned) {
  const box = byId("job-end");
  box.hidden = false;
  box.classList.toggle("problem", job.state !== "done");
  box.textContent = job.state === "done" ? `Learned in ${duration(job.seconds)}: this is version ${job.version}.` : job.error;
  announce(box.textContent);
  if (job.state === "done") await learned();
  await showStaged().catch(() => {});
}
