// DOM helpers. User input is only inserted as text, never as HTML.

export const byId = (id) => document.getElementById(id);

/** Creates an element: el("button", {class: "plain", onclick: f}, "text", child). */
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

/** Creates an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Creates an element for user input, isolated from the surrounding text direction. Lines may break after _ - and . */
export const name = (text) => el("bdi", {}, ...text.split(/(?<=[_.-])/).flatMap((part, i) => (i ? [el("wbr"), part] : [part])));

/** Announces a text to screen readers. */
export function announce(text) {
  byId("live").textContent = text;
}

/** Shows a message at the top of the page; "" hides it. */
export function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

/** Formats a share. Only 1 is 100 %, and only 0 is 0 %. */
export function percent(share) {
  if (share === 0 || share === 1) return `${100 * share}\u00a0%`;
  return share < 0.001 ? "<\u202f0.1\u00a0%" : `${Math.min(99.9, 100 * share).toFixed(1)}\u00a0%`;
}

export const plural = (count, singular, many = `${singular}s`) => `${count.toLocaleString("en")} ${count === 1 ? singular : many}`;

/** Creates a horizontal bar; share from 0 to 1. Hidden from screen readers, since the number is next to it. */
export function bar(share, kind = "") {
  const fill = el("span", { class: `fill ${kind}` });
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return el("span", { class: "bar", "aria-hidden": "true" }, fill);
}

/** Lets the browser save a blob as a file. */
export function saveAs(blob, filename) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: filename }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Creates a form with an input, a submit button and a cancel button. Escape also cancels. */
export function textForm(input, action, send, cancel) {
  const form = el("form", { class: "text-form" }, input, el("button", { class: "main" }, action), el("button", { type: "button", class: "plain", onclick: cancel }, "Cancel"));
  form.addEventListener("keydown", (event) => event.key === "Escape" && cancel());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(input.value.trim());
  });
  return form;
}

/** Requires a second press of the button as confirmation. */
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
