// The page: state from the address, what is shown, what the user does.

import { ask, askInRun, begin, Refused } from "./api.js";
import * as basket from "./basket.js";
import * as chooser from "./chooser.js";
import { $, announce, counted, fill, h, many } from "./dom.js";
import * as example from "./example.js";
import * as facets from "./facets.js";
import * as groups from "./groups.js";
import * as hits from "./hits.js";
import { listen, showHelp } from "./keys.js";
import * as map from "./map.js";
import { placesOf, selectedSpan, unitsOf, whole } from "./marks.js";
import { filters, fromAddress, keepAddress, lasting, state, typed } from "./state.js";
import * as summary from "./summary.js";

let about = null;
let asked = null; // the query as the server has it
const content = $("content");

async function start() {
  const clean = new URL(location.href);
  clean.searchParams.delete("token"); // the cookie has it now; an address is copied and kept
  history.replaceState(null, "", clean.pathname + clean.search + clean.hash);
  setUp();
  fromAddress(location.hash);
  await guarded(async () => {
    about = await ask("about");
    $("served").textContent = about.indexes.length === 1
      ? `${about.indexes[0].name} · ${about.indexes[0].method} · ${many(about.examples, "example")}`
      : many(about.examples, "example");
    document.title = `${about.indexes[0].name} · airrep`;
    for (const field of [$("prompt"), $("response"), $("better")]) field.maxLength = about.limits.text;
    await showAll();
  });
}

// Shows what the server refuses in one line, above everything.
async function guarded(work) {
  try {
    $("alert").hidden = true;
    return await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    $("alert").textContent = error.message;
    $("alert").hidden = false;
    idle();
    return null;
  }
}

function idle() {
  content.removeAttribute("aria-busy");
  $("status").textContent = "";
}

async function showAll() {
  if (about === null) return; // what was asked before the page is ready is shown when it is
  const run = begin(); // from here on an answer to what was asked before is late
  if (state.method === 1 && about.indexes.length < 2 || state.method === "both" && about.indexes.length < 2) state.method = 0;
  drawSwitches();
  showRaw();
  // Counts of a large index take seconds at first. Results wait for them only to hear whether a filter can be read.
  const counts = facets.showFacets();
  await basket.nameRows().catch(() => null);
  if (!state.where || await counts) await showResults();
  else if (!run.aborted) idle();
  await basket.showBasket(about);
  if (state.open !== null) await example.showExample(state.open, state.method === "both" ? 0 : state.method);
  else if ($("example").open) $("example").close();
}

async function showResults() {
  begin();
  $("bar").hidden = !state.query && state.view !== "map";
  if (state.view === "map") {
    if (!state.query) {
      asked = null;
      drawQuery();
    }
    $("status").textContent = "Drawing the map; the first time it takes a while…";
    content.setAttribute("aria-busy", "true");
    await guarded(async () => {
      if (state.query && (asked === null || !same(asked, state.query)) && !await findQuery()) return;
      const count = await map.showMap(about, content);
      if (count === null) return;
      content.removeAttribute("aria-busy");
      status(many(count, "example"));
    });
    return;
  }
  if (!state.query) {
    asked = null;
    idle();
    drawQuery();
    fill(content, welcome());
    await guarded(() => summary.showSummary(about, content));
    return;
  }
  $("status").textContent = state.view === "groups" ? "Scoring groups over all examples…" : "Searching…";
  content.setAttribute("aria-busy", "true");
  await guarded(async () => {
    if (state.view === "groups") {
      if ((asked === null || !same(asked, state.query)) && !await findQuery()) return;
      const told = await groups.showGroups(about, content);
      if (told === null) return;
      content.removeAttribute("aria-busy");
      status(`${many(told.groups, "group")} · ${told.seconds.toFixed(2)} s`);
    } else {
      const told = await hits.showHits(about, content);
      if (told === null) return;
      content.removeAttribute("aria-busy");
      setAsked(told.query);
      hits.activate(hits.page.active, false);
      hits.refreshControls();
      status(hits.countText(told));
      await showCopied();
    }
  });
}

function status(text) {
  $("status").textContent = text;
  announce(text);
}

const same = (one, ref) => (ref.span === undefined || String(one.span ?? []) === String(ref.span)) && (ref.number !== undefined ? one.number === ref.number
  : ref.key !== undefined ? one.key === ref.key
  : one.prompt === ref.prompt && one.response === ref.response && (one.better ?? undefined) === ref.better);

// False if another run was begun meanwhile.
async function findQuery() {
  const told = await askInRun("top", { query: state.query, count: 1 });
  if (told) setAsked(told.query);
  return told !== null;
}

function setAsked(query) {
  asked = query;
  state.query = lasting(state.query, query);
  keepAddress();
  drawQuery();
}

function welcome() {
  return h("div", { class: "welcome" },
    h("h2", null, "Which training examples made the model answer so?"),
    h("p", null, `Write a prompt and a response above. Of ${counted(about.examples)} training examples you will see those that help the response most, those that harm it, and why.`),
    h("p", null, "Or ", h("button", { type: "button", class: "link", onclick: () => { state.view = "map"; redo(); } }, "see all of them on a map"), "."),
    about.queries ? h("p", null, "Or take ", h("button", { type: "button", class: "link", onclick: () => chooser.openChooser() }, `one of ${counted(about.queries)} queries`), ".") : null,
    about.indexes.map((index) => index.caution ? h("p", { class: "note" }, index.caution) : null));
}

function drawQuery(words = []) {
  $("ask-form").hidden = asked !== null;
  $("asked").hidden = asked === null;
  if (asked === null) return;
  const text = (field, who) => h("div", { class: `said ${field}` }, h("span", { class: "who" }, who),
    h("div", { class: "text", dir: "auto", tabindex: asked[field].length > 300 ? "0" : null }, whole(asked, field, placesOf(words, "query", field))));
  const better = asked.better === null ? null : text("better", "Better");
  const response = text("response", "Response"), said = response.querySelector(".text");
  underline(said, unitsOf(asked.response, asked.span));
  fill($("asked"), h("div", { class: better ? "texts three" : "texts" }, text("prompt", "Prompt"), response, better), h("div", { class: "row" },
    h("button", { type: "button", class: "small", onclick: edit }, "Edit"),
    h("button", { type: "button", class: "small", onclick: () => { for (const name of ["prompt", "response", "better"]) $(name).value = ""; edit(null); } }, "New query"),
    h("button", { type: "button", class: "small", onclick: () => chooser.openChooser() }, "Choose a query…"),
    h("button", { type: "button", class: "small", id: "ask-span", hidden: true, onclick: () => askSpan(selectedSpan(said)) }, "Ask about the selected words"),
    asked.span ? h("button", { type: "button", class: "small", onclick: () => askFor({ ...state.query, span: [] }) }, "Ask about the whole response") : h("span", { class: "soft hint", id: "span-hint" }, "select words of the response to ask about only these words"),
    words.length ? h("span", { class: "soft hint" }, h("mark", null, "marked"), " words are also in the example under the mouse pointer") : null));
}

// Words that are asked about alone stand out in the response, whatever else is marked in it.
function underline(element, places) {
  if (!places.length || !CSS.highlights) return;
  const ranges = places.map(([start, stop]) => {
    const range = new Range(), walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    let done = 0;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (start >= done && start < done + node.length) range.setStart(node, start - done);
      if (stop > done && stop <= done + node.length) range.setEnd(node, stop - done);
      done += node.length;
    }
    return range;
  });
  CSS.highlights.set("asked", new Highlight(...ranges));
}

// What of the response stands in the data word for word, above the examples; a search of all texts, so it comes later.
async function showCopied() {
  const told = await askInRun("copied", { query: state.query, index: state.method === "both" ? 0 : state.method, ...filters() });
  if (!told?.copied.length) return;
  const rows = (one) => one.first.map((first) => h("button", { type: "button", class: "link", onclick: () => openExample(first.row) }, first.id));
  content.prepend(h("ul", { class: "copied", "aria-label": "Copied word for word" }, told.copied.map((one) => h("li", null,
    "Copied: ", h("q", null, one.text), h("span", { class: "soft" }, ` ${one.words} words, in ${many(one.examples, "example")}: `),
    rows(one).flatMap((row, place) => place ? [", ", row] : [row]), one.examples > one.first.length ? ", …" : null))));
}

function askSpan(span) {
  if (span) askFor({ ...state.query, span: [span] });
}

// Marking words of the response, with the mouse or the keyboard, offers to ask about them.
document.addEventListener("selectionchange", () => {
  const said = document.querySelector("#asked .response .text"), button = $("ask-span");
  if (!said || !button) return;
  button.hidden = selectedSpan(said) === null;
  const hint = $("span-hint");
  if (hint) hint.hidden = !button.hidden;
});

function edit(keep) {
  if (keep !== null && asked) {
    $("prompt").value = asked.prompt;
    $("response").value = asked.response;
    $("better").value = asked.better ?? "";
  }
  $("ask-form").hidden = false;
  $("asked").hidden = true;
  $("prompt").focus();
}

function askFor(query) {
  state.query = query;
  state.open = null;
  keepAddress(false);
  return showAll();
}

function drawSwitches() {
  const methods = $("methods");
  methods.hidden = about.indexes.length < 2;
  const choices = [...about.indexes.map((index, number) => [number, index.method]), ["both", "Side by side"]];
  fill(methods, choices.map(([value, text]) => pressed(text, state.method === value, () => { state.method = value; redo(); })));
  fill($("views"), [["examples", "Examples"], ["groups", "Groups"], ["map", "Map"]].map(([value, text]) => pressed(text, state.view === value, () => { state.view = value; redo(); })));
  fill($("bar-more"), state.view === "groups" ? chooseField() : state.method === "both" ? chooseSide() : null);
}

function pressed(text, on, work) {
  return h("button", { type: "button", "aria-pressed": String(on), onclick: work }, text);
}

function chooseField() {
  const list = h("select", { id: "by", onchange: () => { state.by = list.value; redo(); } }, about.fields.map((field) => h("option", { value: field }, field)));
  list.value = state.by;
  return h("label", { class: "by" }, "by ", list);
}

function chooseSide() {
  return h("div", { class: "switch", role: "group", "aria-label": "End of the ranking" },
    [["helpful", "Helpful"], ["harmful", "Harmful"]].map(([value, text]) => pressed(text, state.side === value, () => { state.side = value; redo(); })));
}

function showRaw() {
  $("raw").checked = state.raw;
  document.body.classList.toggle("with-raw", state.raw);
}

function redo() {
  keepAddress(false);
  return showAll();
}

function openExample(row) {
  state.open = row;
  keepAddress(false);
  return example.showExample(row, state.method === "both" ? (hits.page.active?.column.number ?? 0) : state.method);
}

function changeBasket() {
  keepAddress();
  hits.refreshControls();
  return basket.showBasket(about);
}

function tick(one) {
  if (!state.ticked.delete(one.row)) state.ticked.set(one.row, { id: one.id, prompt: one.prompt });
  return changeBasket();
}

function mark(one, decision) {
  if (state.marks.get(one.row)?.decision === decision) state.marks.delete(one.row);
  else state.marks.set(one.row, { id: one.id, decision });
  return changeBasket();
}

function turnTheme() {
  const dark = document.documentElement.dataset.theme === "dark"
    || !document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("airrep-theme", dark ? "light" : "dark");
  } catch {
    // Then it lasts as long as the page.
  }
}

function setUp() {
  hits.setUp({ open: openExample, tick, mark, showQuery: (hit) => { if (asked) drawQuery(hit.words); } });
  groups.setUp({
    tickValue: () => { keepAddress(); return basket.showBasket(about); },
    only: (field, value) => { state.facets = { ...state.facets, [field]: [value] }; state.view = "examples"; return redo(); },
  });
  map.setUp({
    open: openExample,
    redo,
    only: (field, value) => { state.facets = { ...state.facets, [field]: [value] }; return redo(); },
    tickAll: (rows) => { for (const row of rows) if (!state.ticked.has(row)) state.ticked.set(row, null); changeBasket(); return basket.nameRows().then(() => basket.showBasket(about)); },
  });
  facets.setUp(redo);
  basket.setUp(() => showChangedBasket());
  example.setUp({
    ask: (query) => { $("example").close(); return askFor(query); },
    closed: () => { if (state.open !== null) { state.open = null; keepAddress(); } },
  });
  chooser.setUp(askFor);
  summary.setUp({ open: openExample, choose: () => chooser.openChooser() });
  $("raw").addEventListener("change", () => { state.raw = $("raw").checked; keepAddress(); showRaw(); });
  $("ask-form").addEventListener("submit", (event) => {
    event.preventDefault();
    askFor(typed($("prompt").value, $("response").value, $("better").value));
  });
  $("ask-form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("ask-form").requestSubmit();
  });
  $("theme").addEventListener("click", turnTheme);
  $("help").addEventListener("click", showHelp);
  window.addEventListener("popstate", () => {
    fromAddress(location.hash);
    showAll();
  });
  setUpKeys();
}

// A tick of a group may have been taken out in the basket, which the table of groups shows too.
function showChangedBasket() {
  for (const box of content.querySelectorAll("table.groups input")) box.checked = false;
  changeBasket();
  return state.view === "groups" ? showResults() : null;
}

function setUpKeys() {
  const active = (work) => () => {
    const one = example.opened() ?? (state.view === "examples" && hits.page.active);
    if (one) work(one);
  };
  const stepping = (rows) => Object.assign(() => {
    hits.step(rows);
    if ($("example").open && hits.page.active) openExample(hits.page.active.row);
  }, { inDialog: true });
  const inDialog = (work) => Object.assign(work, { inDialog: true });
  listen({
    "/": () => edit(),
    c: () => chooser.openChooser(),
    j: stepping(1),
    k: stepping(-1),
    h: () => hits.step(0, -1),
    l: () => hits.step(0, 1),
    Enter: active((hit) => openExample(hit.row)),
    x: inDialog(active(tick)),
    y: inDialog(active((hit) => mark(hit, "keep"))),
    n: inDialog(active((hit) => mark(hit, "drop"))),
    g: () => { if (state.query) { state.view = state.view === "groups" ? "examples" : "groups"; redo(); } },
    f: () => { $("filters").open = true; $("where").focus(); },
    t: inDialog(turnTheme),
    "?": showHelp,
  });
}

start();
