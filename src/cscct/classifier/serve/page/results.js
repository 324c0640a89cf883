// What the model knows: accuracy of each class before and after the last step, and what it confuses.

import { bar, byId, el, name, percent, plural } from "./dom.js";
import { classCells } from "./manage.js";

export function showModel(model) {
  byId("model-name").textContent = model.name;
  document.title = `${model.name} · cscct`;
  const images = model.classes.reduce((sum, one) => sum + one.images, 0);
  byId("model-summary").textContent = model.version
    ? `Version ${model.version}: ${plural(model.classes.length, "class", "classes")}, ${plural(images, "photograph")}`
    : "Nothing is learned yet";
  byId("classify-empty").hidden = model.classes.length > 0;
  byId("class-names").replaceChildren(...model.classes.map((one) => el("option", { value: one.name })));
  showClasses(model);
  showConfusions(model.report ?? {});
}

function showClasses({ classes, report }) {
  const before = report?.before ?? {};
  byId("classes-scroll").hidden = classes.length === 0;
  byId("classes-note").textContent = !classes.length
    ? "Here you will see how well each class is recognised."
    : classes.some((one) => one.count)
      ? "Recognised in cross-validation: each photograph is judged by a model that has not seen it."
      : "How well each class is recognised is measured at the next learning step.";
  byId("class-rows").replaceChildren(...classes.map((one) => row(one, before[one.name], report?.new ?? [])));
  showOverall(classes, before);
}

function row(one, before, fresh) {
  const share = one.count ? one.right / one.count : null;
  const earlier = before?.[1] ? before[0] / before[1] : null;
  const change = share != null && earlier != null ? share - earlier : 0;
  const mark = Math.abs(change) < 0.005 ? "" : change > 0 ? "better" : "worse";
  const was = fresh.includes(one.name) ? el("span", { class: "badge" }, "new") : earlier == null ? "–" : percent(earlier);
  const [title, actions] = classCells(one.name);
  const cells = [
    title,
    el("td", { class: "number" }, one.images.toLocaleString("en")),
    el("td", { class: "number" }, was),
    el("td", { class: `number ${mark}` }, share == null ? "–" : percent(share)),
    el("td", { class: "graph" }, share == null ? "" : bar(share, mark)),
    actions,
  ];
  if (one.count) cells[3].title = `${one.right} of ${one.count}`;
  return el("tr", { "data-label": one.name }, ...cells);
}

function showOverall(classes, before) {
  const total = (pairs) => pairs.reduce(([r, c], [right, count]) => [r + right, c + count], [0, 0]);
  const [right, count] = total(classes.filter((one) => one.count).map((one) => [one.right, one.count]));
  const [rightBefore, countBefore] = total(Object.values(before));
  byId("overall").hidden = !count;
  if (!count) return;
  const parts = [el("strong", {}, percent(right / count)), ` of ${plural(count, "photograph")} recognised`];
  if (countBefore) parts.push(el("span", { class: "quiet" }, ` (before: ${percent(rightBefore / countBefore)} of ${countBefore.toLocaleString("en")})`));
  byId("overall").replaceChildren(...parts);
}

function showConfusions(report) {
  list("confused", "confusions", (report.confusions ?? []).slice(0, 12), ([truth, predicted, count]) => [
    name(truth), " taken for ", name(predicted), el("span", { class: "quiet" }, ` ${count}×`),
  ]);
  const similar = Object.entries(report.similar ?? {}).filter(([, others]) => others.length);
  list("alike", "similar", similar.slice(0, 12), ([label, others]) => [
    el("strong", {}, name(label)), ": ",
    ...others.flatMap(([other, cosine], i) => [i ? ", " : "", name(other), el("span", { class: "quiet" }, ` ${cosine.toFixed(2)}`)]),
  ]);
  const notes = [...(report.notes ?? []).map((text) => ({ text })), ...(report.problems ?? [])];
  list("troubles", "problems", notes.slice(0, 12), ({ path, text }) => [path ? el("strong", {}, name(path)) : "", path ? ": " : "", text]);
}

function list(box, id, entries, content) {
  byId(box).hidden = entries.length === 0;
  byId(id).replaceChildren(...entries.map((entry) => el("li", {}, ...content(entry))));
}
