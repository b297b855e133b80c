// Word by word: what each word of the query has of a score from each word of the example.

import { ask, Refused } from "./api.js";
import { fill, h, signed } from "./dom.js";

const LEVELS = 4; // of shades
const LEAST = 1 / 8; // share of the greatest below which a word has no shade

// A button that asks for the pairs of words of one example, and then both texts, shaded.
export function wordByWord(request) {
  const place = h("section", { class: "by-word" });
  const button = h("button", { type: "button", class: "small", onclick: async () => {
    button.disabled = true;
    fill(place, button, h("p", { class: "soft", role: "status" }, "Reading both texts, token by token…"));
    try {
      const told = await ask("tokens", request);
      if (told !== null) draw(place, told, null);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(place, h("p", { class: "wrong" }, error.message));
    }
  } }, "Word by word");
  return fill(place, button);
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

// The numbers of the example's words: those that one word of the query has of them, or the sums over all.
function ofExample(told, chosen) {
  if (chosen !== null) return told.scores[chosen];
  return told.scores[0].map((_, column) => sum(told.scores.map((row) => row[column])));
}

function draw(place, told, chosen) {
  const asked = told.scores.map(sum), had = ofExample(told, chosen);
  const choose = (number) => {
    draw(place, told, number === chosen ? null : number);
    place.querySelectorAll("button.word")[number].focus();
  };
  const word = (number, text) => h("button", {
    type: "button", class: shade(asked, told.query.words, number), "aria-pressed": String(number === chosen), title: signed(asked[number]), onclick: () => choose(number),
  }, text);
  const other = (number, text) => h("span", { class: shade(had, told.example.words, number), title: signed(had[number]) }, text);
  const rest = Object.entries(told.rest).filter(([, part]) => Math.abs(part) > 0.0005);
  const outside = asked[asked.length - 1];
  fill(place, h("h3", null, "Word by word"),
    h("p", { class: "soft" }, chosen === null
      ? "Words are shaded by their part of the score. Choose a word of the query to see which words of the example its part comes from."
      : `Shaded in the example: the words that gave the chosen word its ${signed(asked[chosen])}. Choose the word again to see all.`),
    h("div", { class: "texts" },
      h("div", { class: "asked-words" }, h("h4", null, "Query"), texts(told.query, word)),
      h("div", null, h("h4", null, "Example"), texts(told.example, other))),
    h("p", { class: "soft" }, [...rest.map(([name, part]) => `${name} ${signed(part)} has no words`), ...(Math.abs(outside) > 0.0005 ? [`${signed(outside)} lies outside the query's words`] : [])].join(" · ")));
}

function texts(one, element) {
  return ["prompt", "response"].filter((field) => one[field]).map((field) => {
    const nodes = [];
    let done = 0;
    one.words.forEach(([own, start, stop], number) => {
      if (own !== field) return;
      nodes.push(one[field].slice(done, start), element(number, one[field].slice(start, stop)));
      done = stop;
    });
    return h("p", { class: `text ${field}`, dir: "auto" }, nodes, one[field].slice(done));
  });
}

function shade(numbers, words, number) {
  const most = Math.max(...words.map((_, place) => Math.abs(numbers[place])));
  const share = most > 0 ? Math.abs(numbers[number]) / most : 0;
  const level = share < LEAST ? 0 : Math.max(1, Math.ceil(LEVELS * share));
  return `word w${level}${level && numbers[number] < 0 ? " below" : ""}`;
}
