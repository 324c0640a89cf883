// Version history.

import { api } from "./api.js";
import { announce, byId, el, name, notice, plural } from "./dom.js";

const TAG = / \[[0-9a-f]{8}\]$/; // marker of a learning step, added by the server
let changed = () => {};

/** onChange: called after another version became the current one. */
export function setUpVersions(onChange) {
  changed = onChange;
  byId("undo").addEventListener("click", () => go(api.undo));
}

async function go(action) {
  try {
    const model = await action();
    notice("");
    announce(`Version ${model.version} is now current.`);
    await changed();
  } catch (error) {
    notice(error.message);
  }
}

export function showVersions({ versions, version }) {
  byId("undo").disabled = !versions.some(({ number }) => number < version);
  byId("version-list").replaceChildren(...versions.map(entry));
}

function entry(item) {
  const when = new Date(item.created);
  const shown = Number.isNaN(when.getTime()) ? item.created : when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const restore = el("button", { type: "button", class: "plain", "aria-label": `Restore version ${item.number}` }, "Restore");
  restore.addEventListener("click", () => go(() => api.restore(item.number)));
  const about = `${plural(item.classes, "class", "classes")}, ${plural(item.images, "photo")}`;
  return el(
    "li",
    { class: item.current ? "current" : "" },
    el("span", { class: "version-number" }, String(item.number)),
    el("div", {}, el("p", {}, name(item.message.replace(TAG, "") || "Learned")), el("p", { class: "quiet" }, `${about} · ${shown}`)),
    item.current ? el("span", { class: "badge" }, "current") : restore,
  );
}
