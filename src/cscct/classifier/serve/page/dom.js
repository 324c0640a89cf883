// Elements, made without HTML strings: what users type is only ever inserted as text.

export const byId = (id) => document.getElementById(id);

/** el("button", {class: "plain", onclick: f}, "text", child): an element. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** The same for SVG. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A text from a user: isolated, so that its writing direction stays its own. */
export const name = (text) => el("bdi", {}, text);

/** Told to those who do not see the page. */
export function announce(text) {
  byId("live").textContent = text;
}

/** A sentence at the top of the page; "" takes it away. */
export function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

export const percent = (share) => `${(100 * share).toFixed(share > 0.995 || share < 0.005 ? 0 : 1)}\u00a0%`;

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

/** A horizontal bar; share from 0 to 1. For the eye only: the figure stands beside it. */
export function bar(share, kind = "") {
  const fill = el("span", { class: `fill ${kind}` });
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, fill);
}

/** A small form around an input: a button that sends its text, one that cancels, and Escape, which cancels too. */
export function textForm(input, action, send, cancel) {
  const form = el("form", { class: "text-form" }, input, el("button", { class: "main" }, action), el("button", { type: "button", class: "plain", onclick: cancel }, "Cancel"));
  form.addEventListener("keydown", (event) => event.key === "Escape" && cancel());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(input.value.trim());
  });
  return form;
}

/** Asks before something that cannot be taken back: the button has to be pressed twice. */
export function twice(button, question, action) {
  const text = button.textContent;
  let armed = 0;
  const reset = () => {
    clearTimeout(armed);
    armed = 0;
    button.textContent = text;
  };
  button.addEventListener("blur", reset);
  button.addEventListener("click", () => {
    if (armed) {
      reset();
      action();
      return;
    }
    button.textContent = question;
    announce(`${question}: ${button.getAttribute("aria-label") ?? text}`);
    armed = setTimeout(reset, 5000);
  });
}
