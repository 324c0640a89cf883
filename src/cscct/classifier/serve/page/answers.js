// The list of classified photos: filter, order, pages, keyboard and CSV.

import { byId, el, plural, saveAs } from "./dom.js";

const PAGE_SIZE = matchMedia("(max-width: 30rem)").matches ? 12 : 24;
const UNSURE = 0.6; // answers with a lower probability are unsure
let cards = []; // newest first
let page = 0;

const best = (card) => card.answer?.predictions[0];
const FILTERS = {
  all: () => true,
  unknown: (card) => card.answer?.unknown,
  unsure: (card) => best(card) && best(card).score < UNSURE,
  outdated: (card) => card.outdated,
};
const byName = (a, b) => a.localeCompare(b, undefined, { numeric: true });
const ORDERS = {
  newest: null,
  unsure: (a, b) => (best(a)?.score ?? 2) - (best(b)?.score ?? 2),
  class: (a, b) => byName(best(a)?.label ?? "", best(b)?.label ?? ""),
  name: (a, b) => byName(a.file.name, b.file.name),
};

export function setUpAnswers() {
  for (const id of ["answer-filter", "answer-order"])
    byId(id).addEventListener("change", () => {
      page = 0;
      showAnswers();
    });
  byId("answers-previous").addEventListener("click", () => turn(-1));
  byId("answers-next").addEventListener("click", () => turn(1));
  byId("answers-csv").addEventListener("click", download);
  byId("answers").addEventListener("keydown", pressed);
}

export const allCards = () => cards;

export function addCards(added) {
  cards = [...added, ...cards];
  page = 0;
  showAnswers();
}

export function removeCards() {
  cards = [];
  page = 0;
  byId("answer-filter").value = "all";
  showAnswers();
}

/** All cards that the filter selects, in order. */
export const shownCards = () => selected();

function selected() {
  const [kind, label] = [byId("answer-filter").value, byId("answer-filter").selectedOptions[0]?.dataset.label];
  const shown = cards.filter(label === undefined ? (FILTERS[kind] ?? FILTERS.all) : (card) => best(card)?.label === label);
  return ORDERS[byId("answer-order").value] ? shown.sort(ORDERS[byId("answer-order").value]) : shown;
}

/** Shows the page of the list that is due. Cards keep their elements, and so their open forms. */
export function showAnswers() {
  showClasses();
  const shown = selected();
  const pages = Math.max(1, Math.ceil(shown.length / PAGE_SIZE));
  page = Math.min(page, pages - 1);
  const items = shown.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE).map(({ item }) => item);
  const present = [...byId("answers").children];
  if (items.length !== present.length || items.some((item, i) => item !== present[i])) byId("answers").replaceChildren(...items);
  const done = cards.filter(({ busy }) => !busy).length;
  byId("classify-bar").hidden = byId("answer-tools").hidden = cards.length === 0;
  byId("classify-count").textContent =
    done < cards.length ? `${done} of ${plural(cards.length, "photo")} classified…` : shown.length < cards.length ? `${shown.length} of ${plural(cards.length, "photo")}` : plural(cards.length, "photo");
  byId("classify-again").hidden = !cards.some(({ outdated }) => outdated);
  byId("answer-pages").hidden = pages === 1;
  byId("answer-page").textContent = `Page ${page + 1} of ${pages}`;
  byId("answers-previous").disabled = page === 0;
  byId("answers-next").disabled = page === pages - 1;
}

/** Lists the predicted classes in the filter. */
function showClasses() {
  const labels = [...new Set(cards.map((card) => best(card)?.label).filter((label) => label !== undefined))].sort(byName);
  const group = byId("answer-classes");
  if (labels.join("\n") === [...group.children].map((option) => option.dataset.label).join("\n")) return;
  const chosen = byId("answer-filter").selectedOptions[0]?.dataset.label;
  group.replaceChildren(...labels.map((label) => el("option", { "data-label": label, value: `class ${label}` }, label)));
  const again = [...group.children].find((option) => option.dataset.label === chosen);
  if (again) again.selected = true;
}

function turn(step) {
  page += step;
  showAnswers();
  byId("answers").firstElementChild?.focus();
}

/** Arrows move between cards, 1 to 9 label with a listed class, Enter opens the form. */
function pressed(event) {
  const item = event.target;
  const card = cards.find((entry) => entry.item === item);
  if (!card || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step) neighbour(item, step)?.focus();
  else if (event.key === "Enter") card.open?.();
  else if (/^[1-9]$/.test(event.key)) {
    const label = card.listed?.[Number(event.key) - 1]?.label;
    if (label === undefined || card.staged) return;
    card.teach(label);
    neighbour(item, 1)?.focus();
  } else return;
  event.preventDefault();
}

const neighbour = (item, step) => (step > 0 ? item.nextElementSibling : item.previousElementSibling);

function download() {
  const rows = selected().filter(({ busy }) => !busy).map((card) => {
    const [first, second] = card.answer?.predictions ?? [];
    return [card.file.name, first?.label, first?.score, second?.label, second?.score, card.answer?.unknown, card.version, card.staged?.label, card.error];
  });
  const head = ["file", "label", "probability", "second", "second_probability", "unknown", "version", "labelled_as", "error"];
  const quoted = (value) => (/[",\r\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const text = [head, ...rows].map((row) => row.map((value) => quoted(value ?? "")).join(",")).join("\r\n");
  saveAs(new Blob([`${text}\r\n`], { type: "text/csv" }), "answers.csv");
}
