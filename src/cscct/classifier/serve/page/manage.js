// Renaming and forgetting a class, in the list of classes.

import { api } from "./api.js";
import { announce, byId, el, name, textForm, twice } from "./dom.js";

let changed = async () => {};

/** told: called after a class was renamed or forgotten. */
export function setUpManage(told) {
  changed = told;
}

/** The cell with the name of a class, and the cell with what can be done to it. */
export function classCells(label) {
  const title = el("th", { scope: "row" }, name(label));
  const rename = button("Rename", label);
  const forget = button("Forget", label);
  rename.addEventListener("click", () => {
    title.replaceChildren(renameForm(label, title));
    title.querySelector("input").select();
  });
  twice(forget, "Press again", async () => {
    const row = forget.closest("tr");
    const next = row.nextElementSibling ?? row.previousElementSibling;
    if (!(await attempt(title, () => api.forget(label)))) return;
    announce(`${label} is forgotten.`);
    focus("Forget", next?.dataset.label); // the button that was pressed is gone
  });
  return [title, el("td", { class: "actions" }, rename, forget)];
}

const button = (text, label) => el("button", { type: "button", class: "plain", "aria-label": `${text} ${label}` }, text);

function renameForm(label, title) {
  const input = el("input", { type: "text", value: label, maxlength: 100, required: true, autocomplete: "off", "aria-label": `New name of ${label}` });
  const form = textForm(input, "Rename", rename, close);

  async function rename(wanted) {
    if (wanted === label) return close();
    if (!(await attempt(form, () => api.rename(label, wanted)))) return;
    announce(`${label} is called ${wanted} now.`);
    focus("Rename", wanted);
  }

  function close() {
    title.replaceChildren(name(label));
    focus("Rename", label);
  }

  return form;
}

/** Whether it was done. If not, the reason is told in the box. */
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

/** A button of a class; where there is no class any more, what comes next. What a person has gone on to keeps the focus. */
function focus(text, label) {
  if (document.activeElement !== document.body) return;
  const found = [...byId("class-rows").querySelectorAll("button")].find((one) => one.ariaLabel === `${text} ${label}`);
  (found ?? byId("teach-name")).focus();
}
