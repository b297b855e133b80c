// Texts with marked places, and bars of channels.

import { h, signed } from "./dom.js";

const WINDOW = 420; // characters of a text in a list
const SEEN = 180; // of these, those that are surely seen on a few lines
const BEFORE = 70; // characters shown before the mark for which a text is cut

// Nodes of a text from start to stop; places are [start, stop, number of the phrase], and may overlap.
export function marked(text, places, start = 0, stop = text.length) {
  const nodes = [];
  let done = start;
  for (const [from, to, phrase] of [...places].sort((a, b) => a[0] - b[0] || b[1] - a[1])) {
    const first = Math.max(from, done), last = Math.min(to, stop);
    if (first >= last) continue;
    nodes.push(text.slice(done, first), h("mark", { "data-phrase": phrase }, text.slice(first, last)));
    done = last;
  }
  nodes.push(text.slice(done, stop));
  return nodes.filter((node) => node !== "");
}

// The characters that are selected in an element with a text, as a span of it: signs of two units count once there.
export function selectedSpan(element) {
  const chosen = getSelection();
  if (!chosen.rangeCount || chosen.isCollapsed || !element.contains(chosen.anchorNode) || !element.contains(chosen.focusNode)) return null;
  const range = chosen.getRangeAt(0), before = range.cloneRange();
  before.selectNodeContents(element);
  before.setEnd(range.startContainer, range.startOffset);
  const text = range.toString(), start = [...before.toString(), ...text.match(/^\s*/)[0]].length;
  return text.trim() ? [start, start + [...text.trim()].length] : null;
}

// Places of spans in the units by which texts are cut here.
export const unitsOf = (text, span) => {
  const signs = [...text], units = (count) => signs.slice(0, count).join("").length;
  return (span ?? []).map((pair) => pair.map(units));
};

// A text whole, its system prompt folded.
export function whole(example, field, places) {
  const text = example[field], end = field === "prompt" ? example.system ?? 0 : 0;
  if (!end) return marked(text, places);
  return [h("details", { class: "system" }, h("summary", null, "System prompt"), marked(text, places, 0, end)), ...marked(text, places, end)];
}

// The part of a text around the phrase that gives most; phrases are numbered by what they give.
export function excerpt(text, places, whole) {
  const [first, last] = [...places].sort((a, b) => a[2] - b[2] || a[0] - b[0])[0] ?? [0, 0];
  const start = last > SEEN ? boundary(text, Math.max(0, first - BEFORE)) : 0;
  const stop = Math.min(text.length, boundary(text, start + WINDOW));
  return [start ? "… " : null, ...marked(text, places, start, stop), stop < whole ? " …" : null];
}

function boundary(text, place) {
  const found = text.indexOf(" ", place);
  const end = found >= 0 && found - place < 20 ? found + 1 : place;
  const low = text.charCodeAt(end); // never between the halves of one sign
  return low >= 0xdc00 && low < 0xe000 ? end - 1 : end;
}

// Places of one field ("prompt" or "response") in the query or in the example.
export function placesOf(words, whose, field) {
  return words.flatMap((word, phrase) => word[whose].filter((place) => place[0] === field)
    .map((place) => [place[1], place[2], phrase]));
}

// Parts of a score side by side; the whole bar is as long as the greatest one of the page.
export function channelBar(channels, greatest) {
  const parts = Object.entries(channels);
  const whole = Math.max(greatest, 1e-12);
  return h("span", { class: "parts", "aria-hidden": "true" }, parts.map(([name, value], place) => h("span", {
    class: value < 0 ? "part below" : `part c${place % 4}`,
    width: `${Math.min(100, (100 * Math.abs(value)) / whole)}%`,
    title: `${name} ${signed(value)}`,
  })));
}

export const extent = (channels) => Object.values(channels).reduce((sum, value) => sum + Math.abs(value), 0);

export function channelText(channels) {
  return h("span", { class: "channels" }, Object.entries(channels).map(([name, value], place) => h("span", { class: "channel" },
    h("span", { class: value < 0 ? "swatch below" : `swatch c${place % 4}`, "aria-hidden": "true" }),
    name, h("b", { class: "raw" }, ` ${signed(value)}`))));
}

// The same words; pointing at one shows where it stands in both texts.
export function phrases(words, roots) {
  if (!words.length) return null;
  const show = (phrase) => () => {
    for (const root of roots()) for (const mark of root.querySelectorAll("mark")) {
      mark.classList.toggle("now", mark.dataset.phrase === String(phrase));
    }
  };
  return h("ul", { class: "phrases", "aria-label": "Same words" }, words.map((word, phrase) => h("li", null,
    h("span", { class: "phrase", onmouseenter: show(phrase), onmouseleave: show(-1) },
      h("span", { class: "words" }, word.text), h("span", { class: "num raw" }, signed(word.score, 2))))));
}
