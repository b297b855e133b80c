// The widget: a question, the examples that taught it, a basket. Its questions go to the kernel, whose answers come in order.

import { counted, fill, h, many, signed } from "./dom.js";
import { channelBar, channelText, excerpt, extent, marked, phrases, placesOf } from "./marks.js";

const COUNT = 10;

// Questions as promises: each has a number, and the kernel's answer has it too.
function asker(model) {
  const waiting = new Map();
  let last = 0;
  const hear = (message) => {
    const settle = waiting.get(message.number);
    if (!settle) return; // a question of another view of this widget
    waiting.delete(message.number);
    settle(message);
  };
  model.on("msg:custom", hear);
  const mine = crypto.getRandomValues(new Uint32Array(1))[0];
  return {
    end: () => model.off("msg:custom", hear),
    ask: async (route, asked) => {
      const number = `${mine}-${last++}`;
      const told = await new Promise((settle) => {
        waiting.set(number, settle);
        model.send({ number, route, asked });
      });
      if (told.error !== undefined) throw new Error(told.error);
      return told.answer;
    },
  };
}

function render({ model, el }) {
  const { ask, end } = asker(model);
  const about = model.get("about");
  const state = { query: null, least: false, hits: [], more: false, names: new Map() };
  const field = (name, rows, hint) => h("label", null, h("span", null, name), h("textarea", { rows, "data-field": name, placeholder: hint }));
  const prompt = field("Prompt", 2), response = field("Response", 2), better = field("Better response", 1, "optional");
  const text = (label) => label.querySelector("textarea").value;
  const chooser = h("select", { "aria-label": "Choose a query", hidden: !about.queries, onchange: () => choose() });
  const button = h("button", { type: "submit", class: "main" }, "Ask");
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); typed(); } }, chooser, prompt, response, better, button);
  const side = h("div", { class: "sides", role: "group", "aria-label": "Order", hidden: true });
  const status = h("p", { class: "status", role: "status" });
  const asked = h("div", { class: "asked" }), list = h("ol", { class: "hits" });
  const again = h("button", { type: "button", hidden: true, onclick: () => guarded(load) }, `Show ${COUNT} more`);
  const basket = h("section", { class: "basket", "aria-label": "Basket", hidden: true });
  const root = h("div", { class: "airrep", "data-method": about.method }, form, status, side, asked, list, again, basket);

  async function guarded(work) {
    root.setAttribute("aria-busy", "true");
    try {
      await work();
    } catch (error) {
      fill(status, h("span", { class: "wrong" }, error.message));
    } finally {
      root.removeAttribute("aria-busy");
    }
  }

  async function fillChooser() {
    const found = [];
    for (let total = 1; found.length < total;) {
      const told = await ask("queries", { start: found.length });
      found.push(...told.queries);
      total = told.queries.length ? told.total : found.length;
    }
    fill(chooser, h("option", { value: "" }, `Choose one of ${counted(found.length)} queries`),
      found.map((one) => h("option", { value: one.number }, `${one.prompt} → ${one.response}`.slice(0, 120))));
  }

  function choose() {
    if (chooser.value !== "") show({ number: Number(chooser.value) });
  }

  function typed() {
    const query = { prompt: text(prompt), response: text(response) };
    chooser.value = "";
    show(text(better).trim() ? { ...query, better: text(better) } : query);
  }

  function show(query) {
    Object.assign(state, { query, hits: [] });
    return guarded(load);
  }

  async function load() {
    const first = state.hits.length === 0;
    if (first) fill(status, "Searching…");
    const told = await ask("top", { query: state.query, least: state.least, start: state.hits.length, count: COUNT });
    state.hits.push(...told.hits);
    if (first) drawQuery(told);
    const greatest = Math.max(...state.hits.map((hit) => extent(hit.channels)), 0);
    fill(list, state.hits.map((hit) => card(hit, greatest)));
    again.hidden = !told.more;
    fill(status, told.verdict?.text ?? `${many(told.matching, "example")}`);
    await drawBasket();
  }

  function drawQuery(told) {
    const [helpful, harmful] = told.query.better === null ? ["Most helpful", "Most harmful"] : ["Teaches the answer", "Teaches the better one"];
    side.hidden = false;
    fill(side, [[helpful, false], [harmful, true]].map(([name, least]) => h("button", {
      type: "button", "aria-pressed": String(state.least === least), onclick: () => { state.least = least; show(state.query); },
    }, name)));
    fill(asked, said(told.query, "prompt", "Prompt"), said(told.query, "response", "Response"));
  }

  const said = (example, name, title) => h("div", { class: "said", "data-text": name }, h("span", { class: "who" }, title),
    h("div", { class: "text", dir: "auto" }, marked(example[name], [])));

  function card(hit, greatest) {
    const part = (name, title) => h("div", { class: "said" }, h("span", { class: "who" }, title),
      h("div", { class: "text", dir: "auto" }, excerpt(hit[name], placesOf(hit.words, "example", name), hit.lengths[name])));
    const own = h("li", { class: "hit", "data-row": hit.row },
      h("div", { class: "head" }, h("b", null, `${counted(hit.rank)}`), h("span", null, `${signed(hit.deviations, 1)} deviations`),
        channelBar(hit.channels, greatest), h("code", null, hit.id), hit.source && h("span", { class: "soft" }, hit.source), toggle(hit)),
      part("prompt", "Prompt"), part("response", "Response"),
      h("div", { class: "why" }, channelText(hit.channels), phrases(hit.words, () => [own, asked])));
    own.onmouseenter = () => mark(hit);
    return own;
  }

  // The words of the query that the example at the pointer has too.
  function mark(hit) {
    for (const name of ["prompt", "response"]) {
      const place = asked.querySelector(`[data-text="${name}"] .text`);
      fill(place, marked(place.textContent, placesOf(hit.words, "query", name)));
    }
  }

  function toggle(hit) {
    state.names.set(hit.row, hit.id);
    return h("button", {
      type: "button", "data-toggle": hit.row, "aria-pressed": String(model.get("rows").includes(hit.row)),
      "aria-label": `Example ${hit.id} in the basket`, onclick: () => put(hit.row),
    }, "Basket");
  }

  function put(row) {
    const rows = model.get("rows");
    model.set("rows", rows.includes(row) ? rows.filter((one) => one !== row) : [...rows, row].sort((a, b) => a - b));
    model.save_changes();
  }

  async function drawBasket() {
    const rows = model.get("rows");
    for (const one of list.querySelectorAll("[data-toggle]")) one.setAttribute("aria-pressed", String(rows.includes(Number(one.dataset.toggle))));
    basket.hidden = !rows.length;
    if (!rows.length) return;
    const unknown = rows.filter((row) => !state.names.has(row));
    if (unknown.length) for (const one of (await ask("rows", { rows: unknown })).rows) state.names.set(one.row, one.id);
    const change = state.query ? await ask("what-if", { query: state.query, rows }) : null;
    fill(basket, h("b", null, `Basket: ${many(rows.length, "example")}`),
      change && h("p", { class: "change" }, `Without ${rows.length === 1 ? "it" : "them"} the score of the training data changes by ${signed(change.change)}: ${change.meaning}.`),
      h("ul", null, rows.map((row) => h("li", null, h("code", null, state.names.get(row)), " ",
        h("button", { type: "button", "aria-label": `Take ${state.names.get(row)} out of the basket`, onclick: () => put(row) }, "✕")))));
  }

  const changed = () => guarded(drawBasket);
  model.on("change:rows", changed);
  el.append(root);
  if (about.queries) guarded(fillChooser);
  if (model.get("rows").length) changed();
  return () => { end(); model.off("change:rows", changed); };
}

export default { render };
