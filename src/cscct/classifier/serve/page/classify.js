// Predictions for photos, and their corrections.

import { api, each } from "./api.js";
import { announce, bar, byId, el, name, percent, plural, textForm } from "./dom.js";
import { acceptFiles } from "./drop.js";

const MIN_SCORE = 0.005; // lower scores are hidden, except for the first two classes
let total = 0;
let classified = 0;

/** changed: called when a correction is staged or removed. */
export function setUpClassify(changed) {
  acceptFiles(byId("classify-zone"), [byId("classify-files"), byId("classify-folder")], async (selected) => {
    const cards = selected.map(({ file }) => addCard(file));
    total += cards.length;
    showCount();
    await each(cards.reverse(), async (card) => {
      await classify(card, changed);
      classified += 1;
      showCount();
    });
    announce(`${plural(cards.length, "photo")} classified.`);
  });
  byId("classify-clear").addEventListener("click", () => {
    for (const image of byId("answers").querySelectorAll("img")) URL.revokeObjectURL(image.src);
    byId("answers").replaceChildren();
    total = classified = 0;
    showCount();
  });
}

function showCount() {
  byId("classify-bar").hidden = total === 0;
  byId("classify-count").textContent =
    classified < total ? `${classified} of ${plural(total, "photo")} classified…` : plural(total, "photo");
}

function addCard(file) {
  const image = el("img", { class: "thumb", alt: "", src: URL.createObjectURL(file) });
  image.addEventListener("error", () => image.replaceWith(el("span", { class: "thumb none", "aria-hidden": "true" })));
  const body = el("div", { class: "answer", "aria-busy": "true" }, el("p", { class: "quiet" }, "…"));
  const item = el("li", { class: "card" }, image, body);
  byId("answers").prepend(item);
  return { file, item, body };
}

async function classify(card, changed) {
  const { file, item, body } = card;
  const caption = el("p", { class: "quiet file" }, name(file.name));
  try {
    const answer = await api.classify(file);
    item.classList.toggle("unknown", answer.unknown);
    body.replaceChildren(
      answer.unknown ? el("p", { class: "badge", title: "Resembles none of the classes" }, "Unknown") : "",
      el("ol", { class: "top" }, ...answer.predictions.filter(({ score }, rank) => rank < 2 || score >= MIN_SCORE).map(line)),
      caption,
      correction(file, answer, changed),
    );
  } catch (error) {
    body.replaceChildren(el("p", { class: "problem" }, error.message), caption);
  }
  body.removeAttribute("aria-busy");
}

function line({ label, score }) {
  return el("li", {}, el("span", { class: "label" }, name(label)), el("span", { class: "score" }, percent(score)), bar(score));
}

/** A button that opens a form for the correct class. */
function correction(file, answer, changed) {
  const box = el("div", { class: "correction" });
  const open = el("button", { type: "button", class: "plain" }, answer.unknown ? "Add label" : "Correct");
  const input = el("input", {
    type: "text",
    list: "class-names",
    maxlength: 100,
    required: true,
    autocomplete: "off",
    "aria-label": `Class of ${file.name}`,
    placeholder: "class name",
  });
  const form = textForm(input, "Add", teach, close);
  open.addEventListener("click", () => {
    box.replaceChildren(form);
    input.focus();
  });

  async function teach(label) {
    try {
      show(await api.stage(file, label));
      changed();
    } catch (error) {
      box.replaceChildren(form, el("p", { class: "problem", role: "alert" }, error.message));
    }
  }

  function close() {
    box.replaceChildren(open);
    open.focus();
  }

  function show(staged) {
    const undo = el("button", { type: "button", class: "plain" }, "Undo");
    undo.addEventListener("click", async () => {
      await api.unstage(staged.id).catch(() => {}); // already learned or removed
      close();
      changed();
    });
    box.replaceChildren(el("p", { class: "taught" }, "Will be learned as ", el("strong", {}, name(staged.label))), undo);
    undo.focus();
    announce(`${file.name} will be learned as ${staged.label}.`);
  }

  box.append(open);
  return box;
}
