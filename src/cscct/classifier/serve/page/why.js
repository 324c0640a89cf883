// Why an answer: the stored photos that resemble a photo most.

import { api } from "./api.js";
import { byId, el, name, percent } from "./dom.js";

export function setUpWhy() {
  byId("why-close").addEventListener("click", () => byId("why").close());
  byId("why").addEventListener("click", (event) => event.target === byId("why") && byId("why").close()); // outside
}

/** Shows the stored photos that resemble the photo of a card most. */
export async function showWhy({ file, url, answer: { unknown } }) {
  byId("why-image").src = url;
  byId("why-title").textContent = file.name;
  byId("why-body").replaceChildren(el("p", { class: "quiet" }, "…"));
  byId("why").showModal();
  try {
    const answer = await api.explain(file);
    byId("why-body").replaceChildren(
      el("p", {}, ...(unknown ? ["Answer: ", el("strong", {}, "Unknown"), ". Most probable class: "] : ["Answer: "]), el("strong", {}, name(answer.label)), ` ${percent(answer.probability)}`),
      ...group(["Most similar stored photos of ", name(answer.label)], answer.same, answer.version),
      ...group(["Most similar stored photos of other classes"], answer.others, answer.version),
      el("p", { class: "quiet" }, "The number is the similarity of the features, at most 1."),
    );
  } catch (error) {
    byId("why-body").replaceChildren(el("p", { class: "problem", role: "alert" }, error.message));
  }
}

function group(title, neighbours, version) {
  const figures = neighbours.map(({ label, class_index, number, similarity }) =>
    el(
      "li",
      {},
      el("img", { src: `/api/exemplars/${class_index}/${number}?version=${version}`, alt: label }),
      el("span", { class: "label" }, name(label)),
      el("span", { class: "quiet" }, similarity.toFixed(3)),
    ),
  );
  return [el("h3", {}, ...title), figures.length ? el("ul", { class: "neighbours" }, ...figures) : el("p", { class: "quiet" }, "No stored photos.")];
}
