// Predictions for photos, and their corrections.

import { addCards, allCards, removeCards, setUpAnswers, showAnswers, shownCards } from "./answers.js";
import { api, each } from "./api.js";
import { cameraButton } from "./camera.js";
import { announce, bar, byId, el, name, percent, plural, textForm } from "./dom.js";
import { acceptFiles, withoutClasses } from "./drop.js";
import { suggested } from "./suggested.js";
import { zoomButton } from "./viewer.js";
import { showWhy } from "./why.js";

const LISTED = 0.95; // at least two classes are listed, and as many as have this probability together
let current = 0; // version of the model
let stagedIds = new Set();
let changed = () => {};

/** onChange: called when a correction is staged or removed. */
export function setUpClassify(onChange) {
  changed = onChange;
  setUpAnswers();
  acceptFiles(byId("classify-zone"), [byId("classify-files"), byId("classify-folder")], classifyFiles, withoutClasses);
  cameraButton(byId("classify-camera"), classifyFiles);
  showQueue();
  byId("classify-again").addEventListener("click", async () => {
    const cards = allCards().filter(({ outdated }) => outdated);
    await each(cards, classify);
    announce(`${plural(cards.length, "photo")} classified again.`);
    if (document.activeElement === document.body) byId("classify-clear").focus();
  });
  byId("classify-clear").addEventListener("click", () => {
    for (const { url } of allCards()) URL.revokeObjectURL(url);
    removeCards();
  });
}

async function classifyFiles(selected) {
  try {
    const { photos, ranked, missing } = await suggested(selected);
    if (!photos.length) return problem("There are no photos in the folder.");
    problem(missing ? `${plural(missing, "listed photo")} not found among the dropped files.` : "");
    await classifyCards(photos.map(({ file }) => newCard(file)), ranked);
  } catch (error) {
    problem(error.message);
  }
}

/** ranked: whether the cards are shown in this order; otherwise the last one comes first. */
async function classifyCards(cards, ranked) {
  addCards(ranked ? cards : [...cards].reverse());
  if (ranked) cards[0]?.item.focus();
  await each(cards, classify);
  announce(`${plural(cards.length, "photo")} classified.`);
}

function problem(text) {
  byId("classify-problem").textContent = text;
  byId("classify-problem").hidden = !text;
}

/** Offers the photos of the list that the server was started with. */
async function showQueue() {
  const photos = await api.queue().catch(() => []);
  byId("queue").hidden = photos.length === 0;
  byId("queue-text").textContent = `${plural(photos.length, "photo")} suggested for labelling, most useful first.`;
  byId("queue-load").addEventListener("click", async () => {
    byId("queue-load").disabled = true;
    const cards = photos.map(() => null);
    const errors = [];
    await each([...photos.keys()], async (place) => {
      const { number, name: filename } = photos[place];
      try {
        cards[place] = newCard(new File([await api.queued(number)], filename));
      } catch (error) {
        errors.push(error.message);
      }
    });
    byId("queue").hidden = true;
    problem(errors.join(" "));
    await classifyCards(cards.filter((card) => card), true);
  });
}

/** Marks answers of other versions as outdated. */
export function markOutdated(version) {
  current = version;
  for (const card of allCards()) mark(card);
  showAnswers();
}

/** Offers to take corrections back only while they are staged and not being learned. ids: the staged photos of a revision. */
export function showCorrections(ids, learning, revision) {
  stagedIds = new Set(ids);
  for (const card of allCards()) {
    if (!card.staged || card.learned || card.revision > revision) continue;
    if (stagedIds.has(card.staged.id)) card.takeBack.hidden = learning;
    else if (learning || current !== card.stagedVersion) showLearned(card);
    else close(card, false); // removed from the staged photos
  }
}

function mark(card) {
  card.outdated = Boolean(card.answer) && card.version !== current;
  card.item.classList.toggle("outdated", card.outdated);
  card.age.hidden = !card.outdated;
  card.age.textContent = `Outdated: answer of version ${card.version}`;
}

function newCard(file) {
  const url = URL.createObjectURL(file);
  const image = el("img", { class: "thumb", alt: "", src: url });
  const zoom = zoomButton(image, file.name, () => {
    const cards = shownCards();
    return [cards.map(enlarged), cards.indexOf(card)];
  });
  image.addEventListener("error", () => zoom.replaceWith(el("span", { class: "thumb none", "aria-hidden": "true" })));
  const body = el("div", { class: "answer", "aria-busy": "true" }, el("p", { class: "quiet" }, "…"));
  const item = el("li", { class: "card", tabindex: 0 }, zoom, body);
  const card = { file, url, item, body, busy: true, age: el("p", { class: "age", hidden: true }), box: el("div", { class: "correction" }) };
  card.teach = (label) => teach(card, label);
  return card;
}

function enlarged({ file, url, answer }) {
  const note = !answer ? "" : answer.unknown ? "unknown" : `${answer.predictions[0].label} ${percent(answer.predictions[0].score)}`;
  return { src: url, title: file.name, note };
}

async function classify(card) {
  const { file, item, body } = card;
  const caption = el("p", { class: "quiet file" }, name(file.name));
  try {
    const { answer, version } = await api.classify(file);
    let sum = 0;
    const listed = answer.predictions.filter(({ score }, rank) => {
      const before = sum;
      sum += score;
      return rank < 2 || before < LISTED;
    });
    Object.assign(card, { answer, version, listed, error: undefined });
    current = Math.max(current, version);
    item.classList.toggle("unknown", answer.unknown);
    item.setAttribute("aria-label", `${file.name}: ${answer.unknown ? "unknown" : answer.predictions[0].label}`);
    if (!card.staged) close(card, false);
    body.replaceChildren(
      card.age,
      answer.unknown ? el("p", { class: "badge", title: "Resembles none of the classes" }, "Unknown") : "",
      el("ol", { class: "top" }, ...listed.map(line)),
      caption,
      card.box,
    );
  } catch (error) {
    card.error = error.message;
    body.replaceChildren(el("p", { class: "problem" }, error.message), caption);
  }
  body.removeAttribute("aria-busy");
  card.busy = false;
  mark(card);
  showAnswers();
}

function line({ label, score }) {
  return el("li", {}, el("span", { class: "label", title: label }, name(label)), el("span", { class: "score" }, percent(score)), bar(score));
}

/** Shows the button that opens the form for the correct class. */
function close(card, focus = true) {
  card.staged = card.learned = null;
  const open = el("button", { type: "button", class: "plain" }, card.answer.unknown ? "Add label" : "Correct");
  card.open = () => openForm(card);
  open.addEventListener("click", card.open);
  const why = el("button", { type: "button", class: "plain", "aria-label": `Why this answer for ${card.file.name}?` }, "Why?");
  why.addEventListener("click", () => showWhy(card));
  card.box.replaceChildren(open, why);
  if (focus) card.item.focus();
}

function openForm(card) {
  const input = el("input", {
    type: "text",
    list: "class-names",
    maxlength: 100,
    required: true,
    autocomplete: "off",
    "aria-label": `Class of ${card.file.name}`,
    placeholder: "class name",
  });
  const send = async (label) => {
    await teach(card, label);
    if (card.staged) card.takeBack.focus();
  };
  card.box.replaceChildren(textForm(input, "Add", send, () => close(card)));
  input.focus();
}

async function teach(card, label) {
  card.box.querySelector(".problem")?.remove();
  try {
    const { photo, revision } = await api.stage(card.file, label);
    Object.assign(card, { staged: photo, revision });
  } catch (error) {
    card.box.append(el("p", { class: "problem", role: "alert" }, error.message));
    return;
  }
  card.stagedVersion = current;
  card.open = null;
  stagedIds.add(card.staged.id);
  card.takeBack = el("button", { type: "button", class: "plain" }, "Take back");
  card.takeBack.addEventListener("click", () => takeBack(card));
  card.box.replaceChildren(el("p", { class: "taught" }, "Will be learned as ", el("strong", {}, name(card.staged.label))), card.takeBack);
  announce(`${card.file.name} will be learned as ${card.staged.label}.`);
  changed();
}

async function takeBack(card) {
  try {
    await api.unstage(card.staged.id);
    close(card);
  } catch (error) {
    card.box.querySelector(".problem")?.remove();
    card.box.append(el("p", { class: "problem", role: "alert" }, error.message));
  }
  changed();
}

function showLearned(card) {
  card.learned = true;
  card.box.replaceChildren(el("p", { class: "taught" }, "Learned as ", el("strong", {}, name(card.staged.label))));
}
