// Rankings side by side: helpful and harmful examples, or two methods.

import { askInRun, Refused } from "./api.js";
import { $, announce, counted, fill, h, many, signed } from "./dom.js";
import { channelBar, channelText, excerpt, extent, phrases, placesOf } from "./marks.js";
import { filters, lasting, state } from "./state.js";

const COUNT = 20;

export const page = { columns: [], active: null };
let actions = {}; // { open, tick, mark, showQuery }

export function setUp(given) {
  actions = given;
}

function wantedColumns(about) {
  if (state.method === "both") {
    const least = state.side === "harmful";
    return about.indexes.map((index, number) => ({ title: index.method, number, least }));
  }
  return [
    { title: "Most helpful", number: state.method, least: false },
    { title: "Most harmful", number: state.method, least: true },
  ];
}

// In place of a better answer nothing helps or harms: it teaches the one or the other.
function contrastTitle(column, first) {
  if (column.least) return ["Teaches the better answer", first >= 0 ? "no example teaches it more than the answer" : "in place of the answer, most first"];
  return ["Teaches the answer", first <= 0 ? "no example teaches it more than the better one" : "in place of the better one, most first"];
}

export async function showHits(about, content) {
  const columns = wantedColumns(about).map((column) => ({
    ...column, hits: [], more: false, request: { query: state.query, index: column.number, least: column.least, ...filters() },
  }));
  const begun = performance.now();
  // One after the other: the first answer holds the query's features, which the second then finds ready.
  for (const column of columns) {
    if (await load(column) === null) return null;
  }
  page.columns = columns;
  page.active = columns[0].hits[0] ?? null;
  draw(content, about);
  const seconds = (performance.now() - begun) / 1000;
  return { query: columns[0].query, matching: columns[0].matching, seconds };
}

async function load(column) {
  const answer = await askInRun("top", { ...column.request, start: column.hits.length, count: COUNT });
  if (answer === null) return null;
  column.request.query = lasting(column.request.query, answer.query);
  column.hits.push(...answer.hits);
  column.more = answer.more;
  column.query = answer.query;
  column.matching = answer.matching;
  column.verdict ??= answer.verdict;
  return answer;
}

function draw(content, about) {
  const all = page.columns.flatMap((column) => column.hits);
  if (!all.length) {
    fill(content, h("p", { class: "none" }, "No training example matches the filters."));
    return;
  }
  fill(content, page.columns.map((column) => drawVerdict(column)), h("div", { class: "columns" }, page.columns.map((column) => drawColumn(column, about))));
  activate(page.active, false);
}

function drawVerdict(column) {
  if (!column.verdict) return null;
  const name = state.method === "both" ? `${column.title}: ` : null;
  return h("p", { class: `verdict ${column.verdict.kind.split(" ")[0]}` }, name, column.verdict.text);
}

function drawColumn(column, about) {
  // Methods have units of their own, so each column of a comparison has its own scale.
  const scaled = state.method === "both" ? column.hits : page.columns.flatMap((one) => one.hits);
  column.greatest = Math.max(...scaled.map((hit) => extent(hit.channels)), 0);
  column.list = h("ol", { class: "hits" }, column.hits.map((hit) => drawHit(hit, column)));
  column.again = h("button", { type: "button", class: "again", hidden: !column.more, onclick: () => loadMore(column) }, `Show ${COUNT} more`);
  return h("section", { class: "column" }, heading(column, about), column.list, column.again);
}

function heading(column, about) {
  const first = column.hits[0]?.score ?? 0;
  let title = column.title, hint = "";
  if (state.method === "both") {
    const others = new Set(page.columns.filter((one) => one !== column).flatMap((one) => one.hits.map((hit) => hit.row)));
    const both = column.hits.filter((hit) => others.has(hit.row)).length;
    hint = `${about.indexes[column.number].name} · ${both} of ${column.hits.length} in both lists`;
  } else if (column.query.better !== null) {
    [title, hint] = contrastTitle(column, first);
  } else if (column.least && first >= 0) {
    title = "Least helpful";
    hint = "no score is below 0: nothing here harms";
  } else hint = column.least ? "lowest scores first" : "highest scores first";
  return h("div", { class: "column-head" }, h("h2", null, title), h("p", { class: "soft" }, hint));
}

async function loadMore(column) {
  if (column.again.closest("[aria-busy]")) return; // another list is on its way
  column.again.disabled = true;
  const before = column.hits.length;
  try {
    if (await load(column) === null) return;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    announce(error.message);
    return;
  } finally {
    column.again.disabled = false;
  }
  column.again.hidden = !column.more;
  column.list.append(...column.hits.slice(before).map((hit) => drawHit(hit, column)));
  announce(`${many(column.hits.length, "example")} shown`);
}

function drawHit(hit, column) {
  const text = (field) => h("div", { class: `said ${field}` }, h("span", { class: "who" }, field === "prompt" ? "Prompt" : "Response"),
    h("div", { class: "text", dir: "auto" }, excerpt(hit[field], placesOf(hit.words, "example", field), hit.lengths[field])));
  const card = h("li", { class: "hit", tabindex: "-1", "data-row": hit.row, onclick: (event) => clicked(event, hit), onmousemove: (event) => pointed(event, hit) },
    h("div", { class: "hit-head" },
      h("span", { class: "rank", title: `Rank ${counted(hit.rank)} of ${many(column.matching, "example")}, ${column.least ? "lowest" : "highest"} first` }, `${counted(hit.rank)} of ${counted(column.matching)}`),
      h("span", { class: "score", title: "Deviations from the mean score of the ranked examples" }, signed(hit.deviations, 1), h("span", { class: "unit" }, " deviations")),
      rawScore(hit),
      channelBar(hit.channels, column.greatest),
      elsewhere(hit, column)),
    h("p", { class: "meta" }, tags(hit)),
    text("prompt"), text("response"),
    h("div", { class: "hit-why" }, channelText(hit.channels), phrases(hit.words, () => [card, $("asked")])),
    controls(hit));
  hit.card = card;
  hit.column = column;
  return card;
}

export function rawScore(one) {
  const parts = one.better_score === undefined ? "" : ` (answer ${signed(one.answer_score)}, better ${signed(one.better_score)})`;
  return h("span", { class: "raw soft" }, `score ${signed(one.score)}${parts}`);
}

// Where the other method has the same example.
function elsewhere(hit, column) {
  if (state.method !== "both") return null;
  const other = page.columns.find((one) => one !== column)?.hits.find((one) => one.row === hit.row);
  return h("span", { class: "soft other" }, other ? `#${other.rank} in the other list` : "only here");
}

export function tags(example) {
  const metadata = Object.entries(example.metadata ?? {}).slice(0, 3).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [example.source, example.label, ...metadata, example.id, example.place].filter((tag) => tag !== null && tag !== undefined && tag !== "")
    .map((tag) => h("span", { class: "tag" }, String(tag).slice(0, 80)));
}

// Keep, drop and what-if of one example; also those of the dialog.
export function controls(example, openable = true) {
  const decision = state.marks.get(example.row)?.decision;
  const button = (word, key) => h("button", {
    type: "button", class: `small ${word}`, "aria-pressed": String(decision === word), "data-decision": word, title: `Key ${key}`,
    "aria-label": `${word === "keep" ? "Keep" : "Drop"} example ${example.id}`,
    onclick: () => actions.mark(example, word),
  }, word === "keep" ? "Keep" : "Drop");
  return h("div", { class: "controls", "data-controls": example.row },
    h("label", { class: "tick", title: "Key x" },
      h("input", { type: "checkbox", checked: state.ticked.has(example.row), "aria-label": `What if example ${example.id} were left out`, onchange: () => actions.tick(example) }),
      "What if left out"),
    button("keep", "y"), button("drop", "n"),
    openable && h("button", { type: "button", class: "small open", "aria-label": `Open example ${example.id}`, onclick: () => actions.open(example.row) }, "Open"));
}

// Brings ticks and decisions on the page up to date without drawing it anew.
export function refreshControls() {
  for (const box of document.querySelectorAll("[data-controls]")) {
    const row = Number(box.dataset.controls);
    box.querySelector("input").checked = state.ticked.has(row);
    for (const button of box.querySelectorAll("[data-decision]")) {
      button.setAttribute("aria-pressed", String(state.marks.get(row)?.decision === button.dataset.decision));
    }
    box.closest(".hit")?.setAttribute("data-decision", state.marks.get(row)?.decision ?? "");
  }
}

// A browser also tells of a pointer that stands still while the page scrolls below it: that is no pointing.
function pointed(event, hit) {
  if (page.active !== hit && (event.movementX || event.movementY)) activate(hit, false);
}

function clicked(event, hit) {
  activate(hit, false);
  if (event.target.closest("button, input, label, a") || String(getSelection())) return;
  actions.open(hit.row);
}

export function activate(hit, scroll = true) {
  for (const card of document.querySelectorAll(".hit.active")) card.classList.remove("active");
  page.active = hit;
  if (!hit) return;
  hit.card.classList.add("active");
  actions.showQuery(hit);
  if (!scroll) return;
  hit.card.focus({ preventScroll: true });
  hit.card.scrollIntoView({ block: "nearest" });
}

// Steps down or up in a column (rows), or to the other column (columns).
export function step(rows, columns = 0) {
  const from = page.active?.column ?? page.columns[0];
  if (!from) return;
  const target = page.columns[Math.min(Math.max(page.columns.indexOf(from) + columns, 0), page.columns.length - 1)];
  const place = page.active ? from.hits.indexOf(page.active) : -1;
  const next = target.hits[Math.min(Math.max(place + rows, 0), target.hits.length - 1)];
  if (next) activate(next);
}

export function countText(told) {
  return `${counted(told.matching)} ${told.matching === 1 ? "example" : "examples"} · ${told.seconds.toFixed(2)} s`;
}
