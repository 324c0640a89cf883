// Renaming, merging and forgetting classes in the class table.

import { api } from "./api.js";
import { announce, byId, el, name, textForm, twice } from "./dom.js";

let changed = async () => {};

/** onChange: called after a class was renamed, merged or forgotten. */
export function setUpManage(onChange) {
  changed = onChange;
}

/** Creates the name cell and the actions cell of a class. */
export function classCells(label) {
  const title = el("th", { scope: "row" }, name(label));
  const rename = button("Rename", label);
  const merge = button("Merge", label);
  const forget = button("Forget", label);
  rename.addEventListener("click", () => {
    title.replaceChildren(renameForm(label, title));
    title.querySelector("input").select();
  });
  merge.addEventListener("click", () => {
    title.replaceChildren(name(label), mergeForm(label, title));
    title.querySelector("input").focus();
  });
  twice(forget, "Confirm", async () => {
    const row = forget.closest("tr");
    const next = row.nextElementSibling ?? row.previousElementSibling;
    if (!(await attempt(title, () => api.forget(label)))) return;
    announce(`${label} forgotten.`);
    focus("Forget", next?.dataset.label); // the pressed button no longer exists
  });
  return [title, el("td", { class: "actions" }, rename, merge, forget)];
}

const button = (text, label) => el("button", { type: "button", class: "plain", "aria-label": `${text} ${label}` }, text);

function renameForm(label, title) {
  const input = el("input", { type: "text", value: label, maxlength: 100, required: true, autocomplete: "off", "aria-label": `New name for ${label}` });
  const form = textForm(input, "Rename", rename, close);

  async function rename(newName) {
    if (newName === label) return close();
    if (!(await attempt(form, () => api.rename(label, newName)))) return;
    announce(`${label} renamed to ${newName}.`);
    focus("Rename", newName);
  }

  function close() {
    title.replaceChildren(name(label));
    focus("Rename", label);
  }

  return form;
}

/** The form for the class that remains after merging. */
function mergeForm(label, title) {
  const input = el("input", { type: "text", list: "class-names", maxlength: 100, required: true, autocomplete: "off", placeholder: "into class", "aria-label": `Class into which ${label} is merged` });
  const form = textForm(input, "Merge", merge, close);

  async function merge(into) {
    if (!(await attempt(form, () => api.merge(label, into)))) return;
    announce(`${label} merged into ${into}.`);
    focus("Merge", into);
  }

  function close() {
    title.replaceChildren(name(label));
    focus("Merge", label);
  }

  return form;
}

/** Runs an action and returns whether it succeeded. Errors are shown in the box. */
async function attempt(box, action) {
  box.querySelector(".problem")?.remove();
  try {
    await action();
  } catch (error) {
    box.append(el("p", { class: "problem", role: "alert" }, error.message));
    return false;
  }
  await changed();
  return true;
}

/** Focuses a button of a class, or the class name input if the class no longer exists. Does not steal the focus. */
function focus(text, label) {
  if (document.activeElement !== document.body) return;
  const target = [...byId("class-rows").querySelectorAll("button")].find((button) => button.ariaLabel === `${text} ${label}`);
  (target ?? byId("teach-name")).focus();
}
