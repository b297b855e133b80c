"use strict";
// The page is complete without this: it adds a filter and one button for all folded texts.
(() => {
  const tools = document.querySelector(".tools");
  const filter = document.getElementById("filter");
  const shown = document.getElementById("shown");
  const unfold = document.getElementById("unfold");
  const entries = [...document.querySelectorAll(".contents li")].map((item) => ({
    item,
    article: document.getElementById(item.querySelector("a").hash.slice(1)),
    text: `${item.textContent} ${item.dataset.find}`.toLowerCase(),
  }));

  const apply = () => {
    const wanted = filter.value.trim().toLowerCase();
    let count = 0;
    for (const { item, article, text } of entries) {
      const hide = !text.includes(wanted);
      item.hidden = hide;
      article.hidden = hide;
      count += hide ? 0 : 1;
    }
    shown.textContent = `${count.toLocaleString("en")} of ${entries.length.toLocaleString("en")} shown`;
  };

  let waiting;
  filter.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(apply, 120);
  });

  unfold.addEventListener("click", () => {
    const open = unfold.dataset.open !== "yes";
    for (const details of document.querySelectorAll("main details")) details.open = open;
    unfold.dataset.open = open ? "yes" : "no";
    unfold.textContent = open ? "Fold all texts" : "Unfold all texts";
  });

  unfold.hidden = !document.querySelector("main details");
  tools.hidden = false;
  apply();
})();
