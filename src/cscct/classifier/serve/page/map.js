// Feature map: photos as dots, class means as labeled rings.

import { api } from "./api.js";
import { byId, el, name, svg } from "./dom.js";
import { zoomButton } from "./viewer.js";

const WIDTH = 640;
const HEIGHT = 440;
const MARGIN = 34;
const PHOTOS = 10;
let chosen = null;
let shown = null;

/** Fetches and draws the map. model: response of /api/model. */
export async function showMap(model) {
  byId("map").classList.toggle("empty", model.classes.length === 0);
  chosen = null;
  byId("map-photos").replaceChildren();
  if (!model.classes.length) {
    byId("map-box").replaceChildren();
    byId("map-legend").replaceChildren();
    return;
  }
  shown = await api.map();
  draw(shown);
}

function draw(map) {
  const place = scale(map.classes);
  const groups = map.classes.map((entry, index) => classGroup(entry, index, place));
  const labels = svg("g", { class: "names" });
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": describe(map) },
    ...groups,
    labels,
  );
  byId("map-box").replaceChildren(picture);
  placeNames(map.classes, place, labels);
  byId("map-legend").replaceChildren(...map.classes.map(legendEntry));
  byId("map-share").textContent = map.classes.length > 2 ? `The map shows ${Math.round(100 * map.share)}\u00a0% of the variance between class means.` : "";
  picture.addEventListener("pointerleave", () => chosen === null && highlight(null));
}

/** Uses the same scale for both axes, so that distances are comparable. */
function scale(classes) {
  const xs = classes.flatMap((entry) => [entry.x, ...entry.points.map(([x]) => x)]);
  const ys = classes.flatMap((entry) => [entry.y, ...entry.points.map(([, y]) => y)]);
  const least = (values) => values.reduce((a, b) => Math.min(a, b)); // too many values for the arguments of a call
  const most = (values) => values.reduce((a, b) => Math.max(a, b));
  const [left, right, low, high] = [least(xs), most(xs), least(ys), most(ys)];
  const factor = Math.min((WIDTH - 2 * MARGIN) / (right - left || 1), (HEIGHT - 2 * MARGIN) / (high - low || 1));
  return (x, y) => [WIDTH / 2 + (x - (left + right) / 2) * factor, HEIGHT / 2 - (y - (low + high) / 2) * factor];
}

function classGroup(entry, index, place) {
  const group = svg("g", { class: "class", "data-index": index });
  group.style.setProperty("--hue", hue(index));
  for (const [x, y] of entry.points) {
    const [cx, cy] = place(x, y);
    group.append(svg("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: 3.2, class: "dot" }));
  }
  const [cx, cy] = place(entry.x, entry.y);
  group.append(svg("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: 7, class: "ring" }));
  group.append(svg("title", {}, entry.name));
  group.addEventListener("pointerenter", () => chosen === null && highlight(index));
  group.addEventListener("click", () => choose(index));
  return group;
}

/** Places class names next to the rings. Overlapping names are only shown while their class is highlighted. */
function placeNames(classes, place, labels) {
  const taken = [];
  classes.forEach((entry, index) => {
    const [cx, cy] = place(entry.x, entry.y);
    const text = svg("text", { x: cx.toFixed(1), y: (cy - 12).toFixed(1), "text-anchor": "middle", "data-index": index });
    text.textContent = entry.name.length > 24 ? `${entry.name.slice(0, 23)}…` : entry.name;
    labels.append(text);
    let box = text.getBBox();
    const shift = Math.max(4 - box.x, Math.min(0, WIDTH - 4 - box.x - box.width));
    text.setAttribute("x", (cx + shift).toFixed(1));
    box = { x: box.x + shift - 2, y: box.y, width: box.width + 4, height: box.height };
    if (taken.some((placed) => overlap(box, placed))) {
      text.setAttribute("y", (cy + 12 + box.height * 0.75).toFixed(1));
      box = { ...box, y: cy + 12 };
    }
    if (taken.some((placed) => overlap(box, placed))) text.classList.add("crowded");
    else taken.push(box);
  });
}

const overlap = (a, b) => a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;

const hue = (index) => Math.round((168 + index * 137.508) % 360);

function describe(map) {
  const names = map.classes.slice(0, 20).map((entry) => entry.name).join(", ");
  return `${map.classes.length} classes in two dimensions: ${names}`;
}

function legendEntry(entry, index) {
  const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
  swatch.style.setProperty("--hue", hue(index));
  const button = el("button", { type: "button", class: "plain", "aria-pressed": "false", "data-index": index }, swatch, name(entry.name));
  button.addEventListener("click", () => choose(index));
  button.addEventListener("focus", () => chosen === null && highlight(index));
  button.addEventListener("blur", () => chosen === null && highlight(null));
  return button;
}

function choose(index) {
  chosen = chosen === index ? null : index;
  highlight(chosen);
  for (const button of byId("map-legend").children) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.index) === chosen));
  }
  showPhotos();
}

function highlight(index) {
  const picture = byId("map-box").firstElementChild;
  picture.classList.toggle("focused", index !== null);
  for (const part of picture.querySelectorAll("[data-index]")) {
    part.classList.toggle("lit", Number(part.dataset.index) === index);
  }
}

/** Shows the exemplars of the chosen class. */
function showPhotos() {
  const entry = chosen === null ? null : shown.classes[chosen];
  const sources = Array.from({ length: Math.min(PHOTOS, entry?.exemplars ?? 0) }, (_, number) => ({
    src: `/api/exemplars/${chosen}/${number}?version=${shown.version}`,
    title: `${entry.name}, photo ${number + 1}`,
  }));
  const images = sources.map(({ src, title }, place) => zoomButton(el("img", { src, alt: "", loading: "lazy" }), title, () => [sources, place]));
  const title = el("p", { class: "quiet" }, name(entry?.name ?? ""), images.length ? ": stored photos" : ": no stored photos");
  byId("map-photos").replaceChildren(...(entry ? [title, ...images] : []));
}
