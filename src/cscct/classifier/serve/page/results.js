// Class table: accuracy before and after the last learning step, confusions and notes.

import { bar, byId, el, name, percent, plural } from "./dom.js";
import { classCells } from "./manage.js";

export function showModel(model) {
  byId("model-name").textContent = model.name;
  document.title = `${model.name} · cscct`;
  const images = model.classes.reduce((sum, entry) => sum + entry.images, 0);
  byId("model-summary").textContent = model.version
    ? `Version ${model.version}: ${plural(model.classes.length, "class", "classes")}, ${plural(images, "photo")}`
    : "No classes yet";
  byId("classify-empty").hidden = model.classes.length > 0;
  byId("class-names").replaceChildren(...model.classes.map((entry) => el("option", { value: entry.name })));
  showClasses(model);
  showConfusions(model.report ?? {});
}

function showClasses({ classes, report }) {
  const before = report?.before ?? {};
  byId("classes-scroll").hidden = classes.length === 0;
  byId("classes-note").textContent = !classes.length
    ? "The accuracy of each class is shown after the first learning step."
    : classes.some((entry) => entry.count)
      ? "Cross-validated accuracy: each photo is classified by a model that was not trained on it."
      : "The accuracy is measured at the next learning step.";
  byId("class-rows").replaceChildren(...classes.map((entry) => row(entry, before[entry.name], report?.new ?? [])));
  showOverall(classes, before);
}

function row(entry, before, newClasses) {
  const share = entry.count ? entry.right / entry.count : null;
  const earlier = before?.[1] ? before[0] / before[1] : null;
  const change = share != null && earlier != null ? share - earlier : 0;
  const mark = Math.abs(change) < 0.005 ? "" : change > 0 ? "better" : "worse";
  const was = newClasses.includes(entry.name) ? el("span", { class: "badge" }, "new") : earlier == null ? "–" : percent(earlier);
  const [title, actions] = classCells(entry.name);
  const cells = [
    title,
    el("td", { class: "number" }, entry.images.toLocaleString("en")),
    el("td", { class: "number" }, was),
    el("td", { class: `number ${mark}` }, share == null ? "–" : percent(share)),
    el("td", { class: "graph" }, share == null ? "" : bar(share, mark)),
    actions,
  ];
  if (entry.count) cells[3].title = `${entry.right} of ${entry.count}`;
  return el("tr", { "data-label": entry.name }, ...cells);
}

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
    name(truth), " predicted as ", name(predicted), el("span", { class: "quiet" }, ` ${count}×`),
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
