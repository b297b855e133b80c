// Choosing a query: those asked before, and those of the file.

import { ask, Refused } from "./api.js";
import { $, counted, fill, h, openDialog } from "./dom.js";
import { pair, refOf } from "./example.js";

let chosen = () => {};

export function setUp(onChoose) {
  chosen = onChoose;
  $("choose").addEventListener("click", openChooser);
}

export async function openChooser() {
  const list = h("div", { class: "choices" });
  const field = h("input", { type: "search", id: "chooser-text", placeholder: "Words of the query", oninput: () => show(list, field.value, 0) });
  openDialog($("chooser"), "chooser-title", "Choose a query", h("label", { for: "chooser-text", class: "unseen" }, "Words of the query"), field, list);
  field.focus();
  await show(list, "", 0);
}

async function show(list, text, start) {
  try {
    const told = await ask("queries", { text: text.slice(0, 2000), start });
    if (told === null) return;
    fill(list, start ? null : section("Asked before", told.asked), section(`From the file: ${counted(told.total)}`, told.queries),
      told.total || told.asked.length ? null : h("p", { class: "none" }, "No queries. Start airrep serve with --queries FILE, or type a query."),
      h("div", { class: "row" },
        start ? h("button", { type: "button", onclick: () => show(list, text, Math.max(0, start - 50)) }, "Earlier") : null,
        start + told.queries.length < told.total ? h("button", { type: "button", onclick: () => show(list, text, start + 50) }, "Later") : null));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    fill(list, h("p", { class: "wrong" }, error.message));
  }
}

function section(title, queries) {
  if (!queries.length) return null;
  return h("section", null, h("h3", null, title), h("ul", { class: "queries" }, queries.map((query) => h("li", null,
    h("button", { type: "button", class: "query", onclick: () => { $("chooser").close(); chosen(refOf(query)); } },
      h("span", { class: "said-short" }, pair(query)),
      query.source ? h("span", { class: "tag" }, query.source) : null)))));
}
