// Keys: what each does, and the help that lists them.

import { $, h, openDialog } from "./dom.js";

const KEYS = [
  ["/", "write a query"],
  ["c", "choose a query"],
  ["j  k", "next, previous example"],
  ["h  l", "left, right column"],
  ["Enter", "open the whole example"],
  ["x", "tick it, to see what happens if it is left out"],
  ["y  n", "keep it, drop it"],
  ["g", "groups, or examples"],
  ["f", "filter"],
  ["t", "light or dark"],
  ["Esc", "close, leave a field"],
  ["?", "this help"],
];

export function showHelp() {
  openDialog($("keys"), "keys-title", "Keys",
    h("dl", { class: "keys" }, KEYS.flatMap(([key, text]) => [h("dt", null, key.split("  ").map((one) => h("kbd", null, one))), h("dd", null, text)])),
    h("p", { class: "soft" }, "A score says how much a training example helps the response; below 0 it harms. With a better answer, the score is that for the response minus that for the better one: above 0, the example teaches the response in its place. Lists show scores in standard deviations from the mean of the ranked examples (those that pass the filters). A score is the sum of the scores of its channels, which are different methods. Marked words are those that the example and the query share; they need not be the cause."),
    h("p", { class: "soft" }, "The address of this page stores all that you see: keep it, or send it to somebody who has the same index. Nothing is written to the index, and nothing leaves this machine."));
}

// Calls the work of a key, unless the user writes in a field.
export function listen(work) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const writing = event.target.closest?.("input:not([type=checkbox]), textarea, select");
    if (writing) {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) writing.blur();
      return;
    }
    const pressing = event.key === "Enter" && event.target.closest?.("button, a, summary, input");
    if (pressing || !Object.hasOwn(work, event.key)) return;
    if (document.querySelector("dialog[open]") && !work[event.key].inDialog) return;
    event.preventDefault();
    work[event.key]();
  });
}
