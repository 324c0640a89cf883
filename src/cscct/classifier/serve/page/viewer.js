// Enlarged photos in a dialog: arrows move, Escape closes.

import { byId, el } from "./dom.js";

let photos = [];
let place = 0;

export function setUpViewer() {
  byId("viewer-previous").addEventListener("click", () => step(-1));
  byId("viewer-next").addEventListener("click", () => step(1));
  byId("viewer-close").addEventListener("click", () => byId("viewer").close());
  byId("viewer").addEventListener("click", (event) => event.target === byId("viewer") && byId("viewer").close()); // outside
  byId("viewer-image").addEventListener("error", () => (byId("viewer-note").textContent = "No image is stored."));
  byId("viewer").addEventListener("keydown", (event) => {
    const offset = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (offset) step(offset);
  });
}

/** Creates a button with a photo that opens the viewer. list: returns the photos {src, title, note} and the position of this one. */
export function zoomButton(image, title, list) {
  const button = el("button", { type: "button", class: "zoom", "aria-label": `Enlarge ${title}` }, image);
  button.addEventListener("click", () => {
    [photos, place] = list();
    show();
    byId("viewer").showModal(); // closing it returns the focus to the button
  });
  return button;
}

function step(offset) {
  place = (place + offset + photos.length) % photos.length;
  show();
}

function show() {
  const { src, title, note } = photos[place];
  const image = byId("viewer-image");
  image.src = src;
  image.alt = title;
  byId("viewer-title").textContent = title;
  byId("viewer-note").textContent = note ?? "";
  byId("viewer-place").textContent = photos.length > 1 ? `${place + 1} of ${photos.length}` : "";
  byId("viewer-previous").hidden = byId("viewer-next").hidden = photos.length < 2;
}
