// Staged photos and the learning step.

import { api, each } from "./api.js";
import { announce, byId, el, name, plural, twice } from "./dom.js";
import { acceptFiles } from "./drop.js";

const MAX_THUMBNAILS = 24; // per class
const POLL_INTERVAL = 400; // milliseconds
let learning = false;

/** learned: called after a learning step stored a new version. */
export function setUpTeach(learned) {
  acceptFiles(byId("teach-zone"), [byId("teach-files"), byId("teach-folder")], add);
  byId("teach-name").addEventListener("keydown", (event) => {
    if (event.key === "Enter") byId("teach-files").click();
  });
  twice(byId("staged-clear"), "Confirm: remove all", async () => {
    await attempt(api.clearStaged);
    showStaged();
  });
  byId("learn").addEventListener("click", async () => {
    byId("job-end").hidden = true;
    if (await attempt(api.learn)) watch(learned);
  });
  twice(byId("stop"), "Confirm: stop", () => attempt(api.stop));
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

async function add(selected) {
  const typed = byId("teach-name").value.trim();
  if (!typed && selected.some(({ folder }) => !folder)) {
    problem("Enter a class name before adding photos.");
    byId("teach-name").focus();
    return;
  }
  const errors = [];
  let done = 0;
  problem("");
  await each(selected, async ({ file, folder }) => {
    try {
      await api.stage(file, typed && !folder ? typed : folder);
    } catch (error) {
      errors.push(error.message);
    }
    done += 1;
    byId("staged-empty").hidden = false;
    byId("staged-empty").textContent = `Adding ${done} of ${plural(selected.length, "photo")}…`;
  });
  byId("staged-empty").textContent = "No photos yet.";
  const more = errors.length > 3 ? ` ${errors.length - 3} more errors.` : "";
  problem(errors.slice(0, 3).join(" ") + more);
  announce(`${plural(selected.length - errors.length, "photo")} added.`);
  showStaged();
}

/** Fetches and shows the staged photos. */
export async function showStaged() {
  const staged = await api.staged();
  const groups = new Map();
  for (const photo of staged) groups.set(photo.label, [...(groups.get(photo.label) ?? []), photo]);
  byId("staged").replaceChildren(...[...groups].map(group));
  byId("staged-empty").hidden = staged.length > 0;
  byId("staged-clear").hidden = staged.length === 0 || learning;
  byId("learn").disabled = staged.length === 0 || learning;
  byId("learn").textContent = staged.length ? `Learn ${plural(staged.length, "photo")}` : "Learn";
}

function group([label, photos]) {
  const known = [...byId("class-names").options].some((option) => option.value === label);
  const title = el("h4", {}, name(label), el("span", { class: "quiet" }, ` ${plural(photos.length, "photo")}`), known ? "" : el("span", { class: "badge" }, "new"));
  const shown = photos.slice(0, MAX_THUMBNAILS).map(thumbnail);
  const more = photos.length - shown.length;
  return el("div", { class: "group" }, title, el("ul", { class: "thumbs" }, ...shown, more > 0 ? el("li", { class: "quiet more" }, `+${more}`) : null));
}

function thumbnail(photo) {
  const remove = el("button", { type: "button", class: "remove", "aria-label": `Remove ${photo.filename} from ${photo.label}` }, "×");
  remove.addEventListener("click", async () => {
    const next = remove.closest("li").nextElementSibling?.querySelector("button");
    const nextLabel = next?.getAttribute("aria-label");
    await attempt(() => api.unstage(photo.id));
    await showStaged();
    announce(`${photo.filename} removed.`);
    const target = [...document.querySelectorAll(".remove")].find((button) => button.getAttribute("aria-label") === nextLabel);
    (target ?? byId("teach-name")).focus(); // the pressed button no longer exists
  });
  return el("li", {}, el("img", { src: `/api/staged/${photo.id}/thumbnail`, alt: photo.filename, loading: "lazy" }), remove);
}

/** Polls the learning step until it ends. initial: ignores a step that ended before the page was opened. */
async function watch(learned, initial = false) {
  let announced = "";
  for (;;) {
    const job = await api.job().catch((error) => ({ state: "failed", error: error.message }));
    if (job.state !== "running") {
      busy(false);
      if (!initial) end(job, learned);
      return;
    }
    initial = false;
    busy(true);
    byId("job-text").textContent = describe(job);
    const bar = byId("job-progress");
    if (job.total && job.done) {
      bar.max = job.total;
      bar.value = job.done;
    } else bar.removeAttribute("value");
    if (job.what !== announced) announce((announced = job.what));
    await new Promise((done) => setTimeout(done, POLL_INTERVAL));
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
  box.textContent = job.state === "done" ? `Version ${job.version} learned in ${duration(job.seconds)}.` : job.error;
  announce(box.textContent);
  if (job.state === "done") await learned();
  await showStaged().catch(() => {});
}
