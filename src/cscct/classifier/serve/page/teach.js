// Staged photos and the learning step.

import { api, each } from "./api.js";
import { cameraButton } from "./camera.js";
import { announce, byId, el, name, plural, twice } from "./dom.js";
import { acceptFiles, labelled } from "./drop.js";
import { zoomButton } from "./viewer.js";

const MAX_THUMBNAILS = 24; // per class
let learning = false;
let phase = "";
let revision = null;
let stagedChanged = () => {};

/** started: called after a learning step was started or stopped. onStaged: called with the ids of the staged photos. */
export function setUpTeach(started, onStaged) {
  stagedChanged = onStaged;
  acceptFiles(byId("teach-zone"), [byId("teach-files"), byId("teach-folder")], add, labelled);
  cameraButton(byId("teach-camera"), add, hasName);
  byId("teach-name").addEventListener("keydown", (event) => {
    if (event.key === "Enter") byId("teach-files").click();
  });
  twice(byId("staged-clear"), "Confirm: remove all", async () => {
    await attempt(api.clearStaged);
    showStaged();
  });
  byId("learn").addEventListener("click", async () => {
    byId("job-end").hidden = true;
    await attempt(async () => showJob(await api.learn()));
    await started();
  });
  twice(byId("stop"), "Confirm: stop", async () => {
    await attempt(api.stop);
    await started();
  });
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

function hasName() {
  if (byId("teach-name").value.trim()) return true;
  problem("Enter a class name before adding photos.");
  byId("teach-name").focus();
  return false;
}

async function add(selected) {
  const typed = byId("teach-name").value.trim();
  if (!selected.length) return problem("There are no photos of a class in the folder.");
  if (selected.some(({ folder }) => !folder) && !hasName()) return;
  const errors = [];
  let done = 0;
  problem("");
  byId("staged-adding").hidden = selected.length < 2;
  await each(selected, async ({ file, folder, path }) => {
    try {
      await api.stage(file, typed && !folder ? typed : folder);
    } catch ({ message }) {
      errors.push(message.includes(file.name) ? message.replace(file.name, path) : `${path}: ${message}`);
    }
    done += 1;
    byId("staged-adding").textContent = `Adding ${done} of ${plural(selected.length, "photo")}…`;
  });
  byId("staged-adding").hidden = true;
  const more = errors.length > 3 ? ` ${errors.length - 3} more errors.` : "";
  problem(errors.slice(0, 3).join(" ") + more);
  announce(`${plural(selected.length - errors.length, "photo")} added.`);
  showStaged();
}

/** Fetches and shows the staged photos, if they changed since revision `known`. Keeps the focus. */
export async function showStaged(known = null) {
  if (known !== null && known === revision) return;
  const { staged, revision: newest } = await api.staged();
  revision = newest;
  const focused = byId("staged").contains(document.activeElement) ? document.activeElement.ariaLabel : null;
  const groups = new Map();
  for (const photo of staged) groups.set(photo.label, [...(groups.get(photo.label) ?? []), photo]);
  stagedChanged(staged.map(({ id }) => id), learning, revision);
  byId("staged").replaceChildren(...[...groups].map(group));
  if (focused) [...byId("staged").querySelectorAll("button")].find((button) => button.ariaLabel === focused)?.focus();
  byId("staged-empty").hidden = staged.length > 0;
  byId("staged-clear").hidden = staged.length === 0 || learning;
  byId("learn").disabled = staged.length === 0 || learning;
  byId("learn").textContent = staged.length ? `Learn ${plural(staged.length, "photo")}` : "Learn";
}

function group([label, photos]) {
  const known = [...byId("class-names").options].some((option) => option.value === label);
  const title = el("h4", {}, name(label), el("span", { class: "quiet" }, ` ${plural(photos.length, "photo")}`), known ? "" : el("span", { class: "badge" }, "new"));
  const sources = photos.map(({ id, filename }) => ({ src: `/api/staged/${id}/thumbnail?large=true`, title: filename, note: label }));
  const shown = photos.slice(0, MAX_THUMBNAILS).map((photo, place) => thumbnail(photo, () => [sources, place]));
  const more = photos.length - shown.length;
  return el("div", { class: "group" }, title, el("ul", { class: "thumbs" }, ...shown, more > 0 ? el("li", { class: "quiet more" }, `+${more}`) : null));
}

function thumbnail(photo, list) {
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
  const image = el("img", { src: `/api/staged/${photo.id}/thumbnail`, alt: "", loading: "lazy" });
  return el("li", {}, zoomButton(image, photo.filename, list), remove);
}

/** Shows the learning step, perhaps of another tab. Returns whether it ended since the last call. */
export function showJob(job) {
  const ended = learning && job.state !== "running";
  if (job.state === "running") {
    if (!learning) byId("job-end").hidden = true;
    busy(true);
    byId("job-text").textContent = describe(job);
    const bar = byId("job-progress");
    if (job.total && job.done) {
      bar.max = job.total;
      bar.value = job.done;
    } else bar.removeAttribute("value");
    if (job.what !== phase) announce((phase = job.what));
  } else if (ended) {
    busy(false);
    phase = "";
    const box = byId("job-end");
    box.hidden = false;
    box.classList.toggle("problem", job.state !== "done");
    box.textContent = job.state === "done" ? `Version ${job.version} learned in ${duration(job.seconds)}.` : job.error;
    announce(box.textContent);
  }
  return ended;
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
  const left = job.seconds_left == null ? "" : `, about ${duration(job.seconds_left)} left in this phase`;
  return text + count + left;
}

const duration = (seconds) => (seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`);
