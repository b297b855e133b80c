// Sets the colours before anything is drawn. The rest of the page is in explorer.js.
"use strict";
try {
  const theme = localStorage.getItem("airrep-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing shows what its system prefers.
}
