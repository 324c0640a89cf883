// Earlier states of the model.

import { api } from "./api.js";
import { announce, byId, el, name, notice, plural } from "./dom.js";

const TAG = / \[[0-9a-f]{8}\]$/; // by which the server knows a step again
let changed = () => {};

/** told: called with the model after another version became the current one. */
export function setUpVersions(told) {
  changed = told;
  byId("undo").addEventListener("click", () => go(api.undo));
}

async function go(action) {
  try {
    const model = await action();
    notice("");
    announce(`Version ${model.version} is the current one.`);
    await changed();
  } catch (error) {
    notice(error.message);
  }
}

export function showVersions({ versions, version }) {
  byId("undo").disabled = !versions.some((one) => one.number < version);
  byId("version-list").replaceChildren(...versions.map(entry));
}

function entry(one) {
  const when = new Date(one.created);
  const shown = Number.isNaN(when.getTime()) ? one.created : when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const restore = el("button", { type: "button", class: "plain", "aria-label": `Restore version ${one.number}` }, "Restore");
  restore.addEventListener("click", () => go(() => api.restore(one.number)));
  const about = `${plural(one.classes, "class", "classes")}, ${plural(one.images, "photograph")}`;
  return el(
    "li",
    { class: one.current ? "current" : "" },
    el("span", { class: "version-number" }, String(one.number)),
    el("div", {}, el("p", {}, name(one.message.replace(TAG, "") || "Learned")), el("p", { class: "quiet" }, `${about} · ${shown}`)),
    one.current ? el("span", { class: "badge" }, "current") : restore,
  );
}
