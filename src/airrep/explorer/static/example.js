// One training example whole, with the queries that it helps.

import { ask, Refused } from "./api.js";
import { $, fill, h, many, openDialog, signed } from "./dom.js";
import { controls, rawScore, tags } from "./hits.js";
import { channelText, phrases, placesOf, whole } from "./marks.js";
import { state } from "./state.js";
import { wordByWord } from "./tokens.js";

let actions = {}; // { ask, closed }
let shown = null;

// The example that is open, if one is.
export const opened = () => $("example").open ? shown : null;

export function setUp(given) {
  actions = given;
  $("example").addEventListener("close", () => actions.closed());
}

export async function showExample(row, index) {
  const dialog = $("example");
  const body = { row, index, ...(state.query ? { query: state.query } : {}) };
  try {
    const found = await ask("example", body);
    if (found === null || state.open !== row) return;
    shown = found;
    draw(dialog, found, { query: state.query, row, index });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    openDialog(dialog, "example-title", `Row ${row}`, h("p", { class: "wrong" }, error.message));
  }
}

function draw(dialog, found, request) {
  const words = found.words ?? [];
  const text = (field) => h("section", null, h("h3", null, field === "prompt" ? "Prompt" : "Response"),
    h("div", { class: "text whole", dir: "auto" }, whole(found, field, placesOf(words, "example", field))));
  openDialog(dialog, "example-title", found.id,
    h("p", { class: "meta" }, tags({ ...found, id: `row ${found.row}`, metadata: {} })),
    controls(found, false),
    found.channels ? h("div", { class: "hit-why" }, h("span", { class: "score big" }, signed(found.deviations, 1), h("span", { class: "unit" }, " deviations")), rawScore(found), channelText(found.channels), phrases(words, () => [dialog, $("asked")])) : null,
    text("prompt"), text("response"),
    found.channels ? wordByWord(request) : null,
    metadata(found.metadata),
    helped(found));
}

function metadata(fields) {
  const entries = Object.entries(fields);
  if (!entries.length) return null;
  return h("section", null, h("h3", null, "Metadata"), h("dl", { class: "fields" },
    entries.flatMap(([name, value]) => [h("dt", null, name), h("dd", { dir: "auto" }, typeof value === "string" ? value : JSON.stringify(value))])));
}

function helped(found) {
  if (!found.queries) return h("p", { class: "soft" }, "No query was asked yet, and airrep serve was started without --queries.");
  const list = (title, queries) => queries.length ? h("section", null, h("h3", null, title), h("ol", { class: "queries" }, queries.map(drawQuery))) : null;
  return h("div", { class: "helped" },
    list(`Of ${many(found.queries, "query").replace("querys", "queries")}, it helps these most`, found.helped),
    list("and these least", found.harmed));
}

function drawQuery(query) {
  return h("li", null, h("button", { type: "button", class: "query", onclick: () => actions.ask(refOf(query)) },
    h("span", { class: "score" }, signed(query.score)), h("span", { class: "said-short" }, pair(query))));
}

export const pair = (query) => [query.prompt, h("span", { class: "soft" }, ` → ${query.response}`, query.better === undefined ? null : h("span", null, ` · better: ${query.better}`))];

export const refOf = (query) => query.number !== undefined ? { number: query.number } : { key: query.key };
