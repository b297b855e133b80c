// The basket: what would change without the ticked examples; and the list of what to keep and to drop.

import { ask, forget, Refused } from "./api.js";
import { $, announce, fill, h, many, save, signed } from "./dom.js";
import { channelText } from "./marks.js";
import { state, toggle } from "./state.js";

const LISTED = 200; // ticked examples shown one by one
let changed = () => {};
let unfolded = false;
let proving = false;

export function setUp(onChange) {
  changed = onChange;
}

const nothing = () => !state.ticked.size && !Object.keys(state.values).length;

export async function showBasket(about) {
  const box = $("basket");
  box.hidden = nothing() && !state.marks.size;
  document.body.classList.toggle("with-basket", !box.hidden);
  if (box.hidden) {
    forget("what-if");
    return;
  }
  const answer = h("div", { class: "answer" });
  fill(box, h("div", { class: "basket-row" }, nothing() ? null : h("div", { class: "what-if" }, h("p", null, "Without ", h("b", null, told()), ":"), answer), decisions()),
    nothing() ? null : h("div", { class: "unfolded" }, listing(), proof()));
  if (!nothing()) await predict(answer, about);
}

// Scores predict; fine-tunes with and without the examples prove. The page gives the command.
function proof() {
  if (!state.query) return null;
  const body = h("div", { class: "proof" });
  const box = h("details", { class: "ticked", open: proving, ontoggle: () => { proving = box.open; if (proving) showCommand(body); } }, h("summary", null, "Prove it"), body);
  return box;
}

async function showCommand(body) {
  try {
    const told = await ask("prove", { query: state.query, index: state.method === "both" ? 0 : state.method, rows: [...state.ticked.keys()], facets: state.values });
    if (told === null) return;
    fill(body,
      h("p", null, `Fine-tunes the model with and without ${told.examples === 1 ? "this example" : `these ${many(told.examples, "example")}`}, and without as many random examples, and reports how the answer changes. Replace MODEL with your model, and run this command where airrep is installed:`),
      h("pre", { tabindex: "0" }, told.command),
      h("div", { class: "row" },
        h("button", { type: "button", class: "small", onclick: (event) => copy(told.command, event.target) }, "Copy"),
        told.ids.length ? h("button", { type: "button", class: "small", onclick: () => save(told.file, told.ids.map((id) => `${JSON.stringify({ id })}\n`).join("")) }, `Download ${told.file}`) : null));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    fill(body, h("p", { class: "wrong" }, error.message));
  }
}

// Browsers let pages copy on this machine and by HTTPS alone.
async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.closest(".proof").querySelector("pre"));
    button.textContent = "Selected: press Ctrl C";
  }
}

function told() {
  const values = Object.entries(state.values).map(([field, chosen]) => `${field} ${chosen.join(", ")}`);
  const rows = state.ticked.size ? [many(state.ticked.size, "ticked example")] : [];
  return [...rows, ...values].join(" and ");
}

async function predict(answer, about) {
  if (!state.query) {
    fill(answer, h("span", { class: "soft" }, "ask a query to see the change"));
    return;
  }
  fill(answer, h("span", { class: "soft" }, "computing over all examples…"));
  const wanted = state.method === "both" ? about.indexes.map((_, number) => number) : [state.method];
  try {
    const parts = [];
    for (const index of wanted) {
      const body = { query: state.query, index, rows: [...state.ticked.keys()], facets: state.values };
      const found = await ask("what-if", body, `what-if ${index}`);
      if (found === null) return;
      parts.push(change(found, about.indexes[index], wanted.length > 1));
    }
    fill(answer, parts);
    announce(answer.textContent);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    fill(answer, h("span", { class: "wrong" }, error.message));
  }
}

function change(found, index, named) {
  return h("p", { class: "change" }, named ? `${index.method}: ` : null,
    h("b", { class: "score big" }, signed(found.change)), " ",
    h("span", null, `${signed(found.before)} → ${signed(found.after)}: ${found.meaning}`),
    Object.keys(found.channels).length > 1 ? channelText(found.channels) : null,
    h("span", { class: "soft" }, `${many(found.removed, "example")} left out of ${many(found.removed + found.kept, "example")}; pool: ${found.pool}`),
    found.caution && found.caution !== index.caution ? h("span", { class: "note" }, found.caution) : null);
}

function decisions() {
  const kept = [...state.marks.values()].filter((mark) => mark.decision === "keep").length;
  const dropped = state.marks.size - kept;
  return h("div", { class: "decisions" },
    h("p", null, h("b", null, kept), " to keep, ", h("b", null, dropped), " to drop"),
    h("div", { class: "row" },
      state.ticked.size ? h("button", { type: "button", class: "small", onclick: dropTicked }, "Drop ticked examples") : null,
      h("button", { type: "button", class: "small", disabled: !state.marks.size, onclick: download }, "Download the list"),
      h("button", { type: "button", class: "small", onclick: clear }, "Clear")));
}

function listing() {
  const rows = [...state.ticked].slice(0, LISTED);
  const box = h("details", { class: "ticked", open: unfolded, ontoggle: () => { unfolded = box.open; } }, h("summary", null, "Show what is left out"),
    h("ul", null,
      Object.entries(state.values).flatMap(([field, values]) => values.map((value) => h("li", null, remove(`${field} ${value}`, () => toggle(state.values, field, value)), `all of ${field} `, h("b", null, value)))),
      rows.map(([row, one]) => h("li", null, remove(`example ${one?.id ?? row}`, () => state.ticked.delete(row)), h("b", null, one?.id ?? `row ${row}`), ` ${(one?.prompt ?? "").slice(0, 120)}`)),
      state.ticked.size > LISTED ? h("li", { class: "soft" }, `and ${many(state.ticked.size - LISTED, "other")}`) : null));
  return box;
}

function remove(what, work) {
  return h("button", { type: "button", class: "plain", "aria-label": `Take ${what} out`, onclick: () => { work(); changed(); } }, "✕");
}

function dropTicked() {
  for (const [row, one] of state.ticked) state.marks.set(row, { id: one?.id ?? null, decision: "drop" });
  changed();
}

function clear() {
  state.ticked.clear();
  state.values = {};
  state.marks.clear();
  changed();
}

function download() {
  const lines = [...state.marks].sort(([a], [b]) => a - b).map(([row, mark]) => JSON.stringify({ id: mark.id, row, decision: mark.decision }));
  save("keep-and-drop.jsonl", lines.map((line) => `${line}\n`).join(""));
}

// Ids and texts of rows that came with the address.
export async function nameRows() {
  const rows = [...new Set([...state.ticked].filter(([, one]) => one === null).map(([row]) => row)
    .concat([...state.marks].filter(([, mark]) => mark.id === null).map(([row]) => row)))];
  if (!rows.length) return;
  const found = await ask("rows", { rows });
  for (const one of found?.rows ?? []) {
    if (state.ticked.has(one.row)) state.ticked.set(one.row, one);
    const mark = state.marks.get(one.row);
    if (mark) mark.id = one.id;
  }
}
