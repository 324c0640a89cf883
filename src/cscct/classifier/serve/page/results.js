// Class table: accuracy before and after the last learning step, confusions and notes.

import { bar, byId, el, name, percent, plural } from "./dom.js";
import { classCells } from "./manage.js";
import { openPhotos } from "./photos.js";

const accuracy = (entry) => (entry.count ? entry.right / entry.count : 2); // classes that are not measured come last
const byName = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });
const ORDERS = {
  worst: (a, b) => accuracy(a) - accuracy(b) || byName(a, b),
  name: byName,
  images: (a, b) => a.images - b.images || byName(a, b),
};
const FEW_DETECTED = 0.5; // detection of unknown photos that cannot be relied on
let shown = { classes: [], report: null };

export function setUpClasses() {
  byId("class-search").addEventListener("input", showRows);
  byId("class-order").addEventListener("change", showRows);
}

export function showModel(model) {
  byId("model-name").textContent = model.name;
  document.title = `${model.name} · cscct`;
  byId("teach-name").maxLength = model.limits.name_length;
  byId("export-box").hidden = model.classes.length === 0;
  const images = model.classes.reduce((sum, entry) => sum + entry.images, 0);
  byId("model-summary").textContent = model.version
    ? `Version ${model.version}: ${plural(model.classes.length, "class", "classes")}, ${plural(images, "photo")}`
    : "No classes yet";
  byId("classify-empty").hidden = model.classes.length > 0;
  byId("class-names").replaceChildren(...model.classes.map((entry) => el("option", { value: entry.name })));
  showUnknown(model);
  showClasses(model);
  showConfusions(model.report ?? {});
}

/** Says what to expect of the detection of unknown photos. */
function showUnknown({ classes, detects_unknown, unknown_detection }) {
  const expected = unknown_detection == null ? "" : `About ${Math.round(100 * unknown_detection)}\u00a0% of the photos of other classes are recognised as unknown`;
  const text = !detects_unknown ? "There are too few photos to recognise unknown ones: 20 are needed, in classes of two or more" : expected && unknown_detection < FEW_DETECTED ? `${expected}: the classes are too similar to rely on it` : expected;
  byId("classify-unknown").textContent = text && `${text}.`;
  byId("classify-unknown").hidden = !text || !classes.length;
}

function showClasses({ classes, report }) {
  const before = report?.before ?? {};
  byId("classes-scroll").hidden = classes.length === 0;
  byId("classes-note").textContent = !classes.length
    ? "The accuracy of each class is shown after the first learning step."
    : classes.some((entry) => entry.count)
      ? "Cross-validated accuracy: each photo is classified by a model that was not trained on it."
      : "The accuracy is measured at the next learning step.";
  byId("class-tools").hidden = classes.length < 2;
  shown = { classes, report };
  showRows();
  showOverall(classes, before);
}

/** Shows the classes whose name contains the search text: new classes first, then in the chosen order. */
function showRows() {
  const { classes, report } = shown;
  const newClasses = new Set(report?.new ?? []);
  const text = byId("class-tools").hidden ? "" : byId("class-search").value.trim().toLocaleLowerCase();
  const order = ORDERS[byId("class-order").value];
  const found = classes.filter((entry) => entry.name.toLocaleLowerCase().includes(text));
  found.sort((a, b) => newClasses.has(b.name) - newClasses.has(a.name) || order(a, b));
  byId("class-rows").replaceChildren(...found.map((entry) => row(entry, report?.before?.[entry.name], newClasses)));
  byId("class-count").textContent = text ? `${found.length} of ${plural(classes.length, "class", "classes")}` : "";
}

function row(entry, before, newClasses) {
  const share = entry.count ? entry.right / entry.count : null;
  const earlier = before?.[1] ? before[0] / before[1] : null;
  const change = share != null && earlier != null ? share - earlier : 0;
  const mark = Math.abs(change) < 0.005 ? "" : change > 0 ? "better" : "worse";
  const was = newClasses.has(entry.name) ? el("span", { class: "badge" }, "new") : earlier == null ? "–" : percent(earlier);
  const [title, actions] = classCells(entry.name);
  const cells = [
    title,
    el("td", { class: "number" }, link(entry.images.toLocaleString("en"), `Photos of ${entry.name}`, () => openPhotos(entry.name))),
    el("td", { class: "number" }, was),
    el("td", { class: `number ${mark}` }, share == null ? "–" : percent(share)),
    el("td", { class: "graph" }, share == null ? "" : bar(share, mark)),
    actions,
  ];
  if (entry.count) cells[3].title = `${entry.right} of ${entry.count}`;
  return el("tr", { "data-label": entry.name }, ...cells);
}

const link = (content, label, action) => el("button", { type: "button", class: "link", "aria-label": label, onclick: action }, ...[content].flat());

function showOverall(classes, before) {
  const total = (pairs) => pairs.reduce(([r, c], [right, count]) => [r + right, c + count], [0, 0]);
  const [right, count] = total(classes.filter((entry) => entry.count).map((entry) => [entry.right, entry.count]));
  const [rightBefore, countBefore] = total(Object.values(before));
  byId("overall").hidden = !count;
  if (!count) return;
  const parts = [el("strong", {}, percent(right / count)), ` of ${plural(count, "photo")} classified correctly`];
  if (countBefore) parts.push(el("span", { class: "quiet" }, ` (before: ${percent(rightBefore / countBefore)} of ${countBefore.toLocaleString("en")})`));
  byId("overall").replaceChildren(...parts);
}

function showConfusions(report) {
  list("confused", "confusions", (report.confusions ?? []).slice(0, 12), ([truth, predicted, count]) => [
    link([name(truth), " predicted as ", name(predicted)], null, () => openPhotos(truth, predicted)), el("span", { class: "quiet" }, ` ${count}×`),
  ]);
  const similar = Object.entries(report.similar ?? {}).filter(([, neighbours]) => neighbours.length);
  list("alike", "similar", similar.slice(0, 12), ([label, neighbours]) => [
    el("strong", {}, name(label)), ": ",
    ...neighbours.flatMap(([neighbour, cosine], i) => [i ? ", " : "", name(neighbour), el("span", { class: "quiet" }, ` ${cosine.toFixed(2)}`)]),
  ]);
  const notes = [...(report.notes ?? []).map((text) => ({ text })), ...(report.problems ?? [])];
  list("troubles", "problems", notes.slice(0, 12), ({ path, text }) => [path ? el("strong", {}, name(path)) : "", path ? ": " : "", text]);
}

function list(box, id, entries, content) {
  byId(box).hidden = entries.length === 0;
  byId(id).replaceChildren(...entries.map((entry) => el("li", {}, ...content(entry))));
}
