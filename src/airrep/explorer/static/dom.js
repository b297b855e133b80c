// Elements and texts. Texts of users become text nodes, never markup.

export const $ = (id) => document.getElementById(id);

// h("button", { class: "x", onclick: f, "aria-label": "y" }, "text", child, null)
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "width") element.style.width = value;
    else if (name === "checked" || name === "value" || name === "indeterminate") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(String(child)));
  }
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

// Control characters as their pictures, one for one, so that places in a text stay what they are.
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (sign) =>
    sign === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + sign.charCodeAt(0)));
}

export function signed(number, digits = 3) {
  const text = Math.abs(number).toFixed(digits);
  if (Number(text) === 0) return text;
  return (number < 0 ? "\u2212" : "+") + text;
}

export const counted = (number) => number.toLocaleString("en");

// "1 example", "2,000 examples"
export const many = (number, word) => `${counted(number)} ${word}${number === 1 ? "" : "s"}`;

export function announce(text) {
  $("live").textContent = text;
}

export function save(name, text, type = "application/x-ndjson") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// A dialog that closes by its button, by Escape, and by a click beside it.
export function openDialog(dialog, titleId, title, ...children) {
  const close = h("button", { type: "button", class: "plain", "aria-label": "Close", onclick: () => dialog.close() }, "✕");
  fill(dialog, h("div", { class: "dialog-head" }, h("h2", { id: titleId }, title), close), ...children);
  dialog.onclick = (event) => { if (event.target === dialog) dialog.close(); };
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}
