// Learned photos: those to review, those of a class, and those behind a confusion; to move, remove or keep.

import { api } from "./api.js";
import { announce, byId, el, name, percent, plural, textForm } from "./dom.js";
import { zoomButton } from "./viewer.js";

const PAGE_SIZE = 12;
const REVIEW = { label: "", predicted: "" };
const NOTES = {
  review: "Photos that the model, computed without them, assigns to another class: perhaps their labels are wrong. Most suspicious first.",
  class: "All photos of the class, in the order in which they were learned.",
  confusion: "The photos behind this confusion, most suspicious first.",
};
let view = REVIEW;
let page = 0;
let total = 0;
let requests = 0; // of lists
let classes = [];
let doneVersion = 0; // of the change that can be undone
let changed = async () => {};

/** onChange: called after photos were changed. */
export function setUpPhotos(onChange) {
  changed = onChange;
  byId("photo-view").addEventListener("change", () => {
    const { label, predicted } = byId("photo-view").selectedOptions[0].dataset;
    open({ label: label ?? "", predicted: predicted ?? "" });
  });
  byId("photos-previous").addEventListener("click", () => turn(-1));
  byId("photos-next").addEventListener("click", () => turn(1));
  byId("photos-undo").addEventListener("click", async () => {
    if (await attempt(byId("photos-done"), api.undo, "")) byId("photo-view").focus();
  });
}

/** Shows the photos of a class, or those of it that are predicted as another class, and moves there. */
export async function openPhotos(label, predicted = "") {
  await open({ label, predicted });
  byId("photos").scrollIntoView({ block: "start" });
  byId("photo-view").focus();
}

/** Shows the list for a new version of the model. */
export async function showPhotos(model) {
  classes = model.classes.map((entry) => entry.name);
  if (model.version !== doneVersion) byId("photos-done").hidden = true; // Undo would undo another change
  if ([view.label, view.predicted].some((label) => label && !classes.includes(label))) view = REVIEW;
  byId("photos").hidden = classes.length === 0;
  if (classes.length) await draw();
}

async function open(next) {
  view = next;
  page = 0;
  byId("photos-done").hidden = true;
  await draw();
}

async function turn(step) {
  page += step;
  await draw();
  byId("photo-list").querySelector("button")?.focus();
}

async function draw() {
  showViews();
  const request = ++requests;
  const answer = await api.photos(view.label, view.predicted, page * PAGE_SIZE, PAGE_SIZE);
  if (request !== requests) return; // another list was requested meanwhile
  total = answer.total;
  const pages = Math.max(1, Math.ceil(total / PAGE_SIZE));
  if (page >= pages) {
    page = pages - 1;
    return draw();
  }
  const sources = answer.photos.map((photo) => ({ src: `/api/photos/${photo.id}?large=true`, title: photo.name, note: describe(photo) }));
  byId("photo-list").replaceChildren(...answer.photos.map((photo, place) => card(photo, () => [sources, place])));
  byId("photos-note").textContent = NOTES[view.predicted ? "confusion" : view.label ? "class" : "review"];
  byId("photos-count").textContent = total ? plural(total, "photo") : view.label ? "No photos are recorded." : "No photo looks mislabelled.";
  byId("photo-pages").hidden = pages === 1;
  byId("photo-page").textContent = `Page ${page + 1} of ${pages}`;
  byId("photos-previous").disabled = page === 0;
  byId("photos-next").disabled = page === pages - 1;
}

/** Fills the list of views: to review, the shown confusion, and all classes. */
function showViews() {
  const option = (text, { label, predicted }) =>
    el("option", { "data-label": label, "data-predicted": predicted, selected: label === view.label && predicted === view.predicted }, text);
  byId("photo-view").replaceChildren(
    option("to review", REVIEW),
    ...(view.predicted ? [option(`${view.label} predicted as ${view.predicted}`, view)] : []),
    el("optgroup", { label: "Class" }, ...classes.map((label) => option(label, { label, predicted: "" }))),
  );
}

const share = (probability) => percent(Math.min(0.9999, Math.max(0.0001, probability))); // rounded to four digits

function describe(photo) {
  if (photo.kind === "not tested") return `${photo.label}, not tested`;
  const own = `${photo.label} ${share(photo.probability)}`;
  return photo.kind === "recognised" ? own : `${own}, looks like ${photo.predicted} ${share(photo.predicted_probability)}`;
}

function card(photo, list) {
  const image = el("img", { class: "thumb", alt: "", loading: "lazy", src: `/api/photos/${photo.id}` });
  const zoom = zoomButton(image, photo.name, list);
  image.addEventListener("error", () => zoom.replaceWith(el("span", { class: "thumb none", title: "No image is stored" })));
  const wrong = photo.label !== photo.predicted;
  const body = el(
    "div",
    { class: "answer" },
    wrong ? el("p", {}, el("strong", {}, name(photo.label)), ` ${share(photo.probability)}`) : el("p", {}, el("strong", {}, name(photo.label))),
    wrong ? el("p", { class: "looks" }, "looks like ", el("strong", {}, name(photo.predicted)), ` ${share(photo.predicted_probability)}`) : null,
    el("p", { class: "quiet file", title: photo.name }, name(photo.name), photo.confirmed ? " (confirmed)" : ""),
  );
  return el("li", { class: "card" }, photo.id ? zoom : el("span", { class: "thumb none" }), body, photo.id ? actions(photo, wrong) : null);
}

function actions(photo, wrong) {
  const box = el("div", { class: "photo-actions" });
  const buttons = [];
  const add = (text, label, action) => buttons.push(el("button", { type: "button", class: "plain", "aria-label": label, title: label, onclick: action }, text));
  const move = (label) => attempt(box, () => api.movePhotos([photo.id], label), `${photo.name} moved to ${label}.`);
  if (wrong) add(`Move to ${photo.predicted}`, `Move ${photo.name} to ${photo.predicted}`, () => move(photo.predicted));
  if (wrong && !photo.confirmed) add("Keep", `Keep ${photo.name} in ${photo.label}`, () => attempt(box, () => api.keepPhotos([photo.id]), `${photo.name} keeps its class.`));
  add("Remove", `Remove ${photo.name}`, () => attempt(box, () => api.removePhotos([photo.id]), `${photo.name} removed.`));
  add("Move…", `Move ${photo.name} to another class`, () => {
    const input = el("input", { type: "text", list: "class-names", maxlength: 100, required: true, autocomplete: "off", "aria-label": `New class of ${photo.name}`, placeholder: "class name" });
    box.replaceChildren(textForm(input, "Move", move, () => {
      box.replaceChildren(...buttons);
      buttons.at(-1).focus();
    }));
    input.focus();
  });
  box.append(...buttons);
  return box;
}

/** Runs a change and returns whether it succeeded; done: what happened. Errors are shown in the box. */
async function attempt(box, action, done) {
  const place = [...byId("photo-list").children].findIndex((item) => item.contains(box));
  const pressed = document.activeElement;
  box.querySelector(".problem")?.remove();
  byId("photo-list").inert = true; // a change of a large model takes a while
  try {
    doneVersion = (await action()).version;
  } catch (error) {
    byId("photo-list").inert = false;
    box.append(el("p", { class: "problem", role: "alert" }, error.message));
    pressed.focus();
    return false;
  }
  byId("photos-text").textContent = done;
  byId("photos-done").hidden = !done;
  announce(done || "Undone.");
  await changed();
  byId("photo-list").inert = false;
  if (place >= 0 && document.activeElement === document.body) {
    const next = byId("photo-list").children[Math.min(place, byId("photo-list").children.length - 1)];
    (next?.querySelector(".photo-actions button") ?? byId("photo-view")).focus(); // the pressed button no longer exists
  }
  return true;
}
