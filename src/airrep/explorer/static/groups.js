// Groups: how much each value of a field gives to the query.

import { askInRun } from "./api.js";
import { counted, fill, h, signed } from "./dom.js";
import { channelText } from "./marks.js";
import { state, toggle } from "./state.js";

let actions = {}; // { tickValue, only }

export function setUp(given) {
  actions = given;
}

export async function showGroups(about, content) {
  const begun = performance.now();
  const wanted = state.method === "both" ? about.indexes.map((_, number) => number) : [state.method];
  const answers = [];
  for (const index of wanted) {
    const answer = await askInRun("groups", { query: state.query, by: state.by, index });
    if (answer === null) return null;
    answers.push({ ...answer, method: about.indexes[index].method });
  }
  fill(content, draw(answers, wanted.map((number) => about.indexes[number].caution)));
  return { groups: answers[0].groups.length, seconds: (performance.now() - begun) / 1000, pool: answers[0].pool };
}

function draw(answers, cautions) {
  const [first, ...others] = answers;
  const scales = answers.map(({ groups }) => ({
    greatest: Math.max(...groups.map((group) => Math.abs(group.score)), 1e-12),
    middle: groups.some((group) => group.score < 0) ? 50 : 0, // where 0 is, in %
  }));
  const beside = others.map((answer) => new Map(answer.groups.map((group) => [group.value, group])));
  const pools = [...new Set(answers.map((answer) => answer.pool))];
  const head = h("thead", null, h("tr", null,
    h("th", { scope: "col" }, first.by),
    answers.map((answer) => h("th", { scope: "col", class: "wide" }, answers.length > 1 ? answer.method : "score of the group")),
    h("th", { scope: "col", class: "num" }, "examples"),
    h("th", { scope: "col" }, "what if left out")));
  const body = h("tbody", null, first.groups.map((group) => h("tr", null,
    h("th", { scope: "row" }, h("button", { type: "button", class: "link", title: "Show only these examples", onclick: () => actions.only(first.by, group.value) }, group.value || "(empty)")),
    [group, ...beside.map((groups) => groups.get(group.value))].map((one, place) => h("td", { class: "wide" }, one ? scoreCell(one, scales[place]) : "–")),
    h("td", { class: "num" }, counted(group.size)),
    h("td", null, tick(first.by, group.value)))));
  return h("div", null,
    h("p", { class: "soft", id: "groups-about" }, `Each group as a whole, pool: ${pools.join(" and ")}. ${answers[0].better
      ? "Above 0 it teaches the answer in place of the better one: the first is the one to leave out."
      : "Higher = more helpful."}`),
    h("div", { class: "scroll" }, h("table", { class: "groups", "aria-describedby": "groups-about" }, head, body)),
    answers.map((answer, place) => answer.caution && answer.caution !== cautions[place] ? h("p", { class: "note" }, answer.caution) : null));
}

function scoreCell(group, { greatest, middle }) {
  const share = ((100 - middle) * Math.abs(group.score)) / greatest;
  return [
    h("span", { class: "score" }, signed(group.score)),
    h("span", { class: middle ? "balance" : "balance whole", "aria-hidden": "true" }, h("span", { class: group.score < 0 ? "left" : "right", width: `${share}%` })),
    Object.keys(group.channels).length > 1 ? channelText(group.channels) : null,
  ];
}

function tick(field, value) {
  return h("label", { class: "tick" }, h("input", {
    type: "checkbox",
    checked: (state.values[field] ?? []).includes(value),
    "aria-label": `What if ${field} ${value} were left out`,
    onchange: () => { toggle(state.values, field, value); actions.tickValue(); },
  }));
}
