// Filters: a where-expression, and values of fields with their counts.

import { ask, Refused } from "./api.js";
import { $, counted, fill, h } from "./dom.js";
import { filtered, filters, state, toggle } from "./state.js";

const FIRST = 8; // values shown before "Show all"
const opened = new Set();
let changed = () => {};

export function setUp(onChange) {
  changed = onChange;
  $("where-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setWhere($("where").value.trim());
  });
  $("where").addEventListener("change", () => setWhere($("where").value.trim()));
  $("clear").addEventListener("click", () => {
    state.facets = {};
    setWhere("", true);
  });
  // On a phone the filters would push everything else down.
  if (matchMedia("(max-width: 60rem)").matches) $("filters").open = false;
}

function setWhere(where, anyway = false) {
  if (where === state.where && !anyway) return;
  state.where = where;
  changed();
}

// Counts of all values; false if the where-expression is refused.
export async function showFacets() {
  $("where").value = state.where;
  $("clear").hidden = !filtered();
  const chosen = Object.values(state.facets).flat().length + (state.where ? 1 : 0);
  $("chosen").textContent = chosen ? `${chosen} chosen` : "";
  try {
    const told = await ask("count", filters());
    if (told === null) return false;
    wrong("");
    fill($("facets"), told.facets.map(drawFacet));
    return true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    wrong(error.message);
    return false;
  }
}

function wrong(message) {
  $("where-error").textContent = message;
  $("where-error").hidden = !message;
  $("where").setAttribute("aria-invalid", String(Boolean(message)));
}

function drawFacet(facet) {
  const chosen = new Set(state.facets[facet.name] ?? []);
  const greatest = Math.max(...facet.values.map((value) => value.count), 1);
  const all = opened.has(facet.name) || facet.values.length <= FIRST + 2;
  const shown = facet.values.filter((value, place) => all || place < FIRST || chosen.has(value.value));
  const box = h("fieldset", { class: "facet" }, h("legend", null, facet.name), shown.map((value) => drawValue(facet.name, value, chosen, greatest)));
  if (!all) {
    box.append(h("button", { type: "button", class: "link", onclick: () => {
      opened.add(facet.name);
      const whole = drawFacet(facet);
      box.replaceWith(whole);
      whole.querySelectorAll("input")[FIRST]?.focus();
    } }, `Show all ${counted(facet.values.length)}`));
  }
  return box;
}

function drawValue(field, value, chosen, greatest) {
  return h("label", { class: value.count ? "value" : "value empty" },
    h("input", { type: "checkbox", checked: chosen.has(value.value), onchange: () => { toggle(state.facets, field, value.value); changed(); } }),
    h("span", { class: "name", dir: "auto" }, value.value || "(empty)"),
    h("span", { class: "num" }, counted(value.count)),
    h("span", { class: "amount", "aria-hidden": "true", width: `${(100 * value.count) / greatest}%` }));
}
