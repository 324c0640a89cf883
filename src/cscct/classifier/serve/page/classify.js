// Answers for photographs, and corrections of them.

import { api, each } from "./api.js";
import { announce, bar, byId, el, name, percent, plural, textForm } from "./dom.js";
import { acceptFiles } from "./drop.js";

const NOTABLE = 0.005; // answers below this are left out, except for the second
let asked = 0;
let answered = 0;

/** changed: called when a correction went into the next learning step. */
export function setUpClassify(changed) {
  acceptFiles(byId("classify-zone"), byId("classify-files"), async (found) => {
    const cards = found.map(({ file }) => addCard(file));
    asked += cards.length;
    count();
    await each(cards.reverse(), async (card) => {
      await classify(card, changed);
      answered += 1;
      count();
    });
    announce(`${plural(cards.length, "photograph")} classified.`);
  });
  byId("classify-clear").addEventListener("click", () => {
    for (const image of byId("answers").querySelectorAll("img")) URL.revokeObjectURL(image.src);
    byId("answers").replaceChildren();
    asked = answered = 0;
    count();
  });
}

function count() {
  byId("classify-bar").hidden = asked === 0;
  byId("classify-count").textContent =
    answered < asked ? `${answered} of ${plural(asked, "photograph")} classified…` : plural(asked, "photograph");
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
      answer.unknown ? el("p", { class: "badge", title: "Like nothing that was learned" }, "Unknown") : "",
      el("ol", { class: "top" }, ...answer.predictions.filter(({ score }, rank) => rank < 2 || score >= NOTABLE).map(line)),
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

/** A button that opens a small form: another class, or a new name. */
function correction(file, answer, changed) {
  const box = el("div", { class: "correction" });
  const ask = el("button", { type: "button", class: "plain" }, answer.unknown ? "Name it" : "Correct it");
  const input = el("input", {
    type: "text",
    list: "class-names",
    maxlength: 100,
    required: true,
    autocomplete: "off",
    "aria-label": `What ${file.name} shows`,
    placeholder: "what it shows",
  });
  const form = textForm(input, "Teach", teach, close);
  ask.addEventListener("click", () => {
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
    box.replaceChildren(ask);
    ask.focus();
  }

  function show(staged) {
    const undo = el("button", { type: "button", class: "plain" }, "Take back");
    undo.addEventListener("click", async () => {
      await api.unstage(staged.id).catch(() => {}); // learned or removed meanwhile
      close();
      changed();
    });
    box.replaceChildren(el("p", { class: "taught" }, "Next step learns it as ", el("strong", {}, name(staged.label))), undo);
    undo.focus();
    announce(`${file.name} will be learned as ${staged.label}.`);
  }

  box.append(ask);
  return box;
}
