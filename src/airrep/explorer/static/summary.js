// What the first examples of all queries of the file have in common: the sum, before any query is chosen.

import { askInRun } from "./api.js";
import { counted, h, many, signed } from "./dom.js";
import { state } from "./state.js";

const SHOWN = 10; // examples; the sum is of the first 20
let actions = {}; // { open, choose }

export function setUp(given) {
  actions = given;
}

export async function showSummary(about, content) {
  if (about.queries < 2) return;
  const place = h("section", { class: "summary" }, h("p", { class: "soft" }, `Searching for all ${many(about.queries, "query").replace("querys", "queries")}…`));
  content.prepend(place);
  const told = await askInRun("summary", { index: state.method === "both" ? 0 : state.method });
  if (told !== null) place.replaceWith(draw(about, told));
}

function draw(about, told) {
  const shares = Object.entries(told.shares).filter(([, found]) => found.length)
    .map(([word, found]) => h("li", null, h("span", { class: "who" }, word), h("span", null, found.slice(0, 4)
      .flatMap(([name, examples], place) => [place ? " · " : null, h("b", null, name.slice(0, 60)), ` ${examples}`]))));
  return h("section", { class: "summary" },
    h("h2", null, about.better ? `What taught these ${counted(told.queries)} answers in place of the better ones` : `What helps these ${counted(told.queries)} queries`),
    shares.length ? h("p", null, `How many of the first ${told.first.length} examples over all queries have one source, label, or opening of the response:`) : null,
    shares.length ? h("ul", { class: "shares" }, shares) : null,
    h("ol", { class: "queries" }, told.first.slice(0, SHOWN).map((one) => drawRow(one, told.queries))),
    h("button", { type: "button", onclick: () => actions.choose() }, "Choose a query…"));
}

function drawRow(one, queries) {
  const { source, label, prompt, response, id, place } = one.example;
  return h("li", null, h("button", { type: "button", class: "query", onclick: () => actions.open(one.row) },
    h("span", { class: "score", title: "Mean deviations over these queries" }, signed(one.mean, 1)),
    h("span", { class: "said-short" }, prompt, h("span", { class: "soft" }, ` → ${response}`)),
    h("span", { class: "tag" }, `in ${one.queries} of ${queries}`, h("br"), [source, label, place ?? id].filter((tag) => tag).join(" · ").slice(0, 60))));
}
