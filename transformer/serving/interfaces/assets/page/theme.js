"use strict";
// Light or dark: as the system is, until the button chooses; runs before anything is painted.
const night = matchMedia("(prefers-color-scheme: dark)");

// A browser that keeps nothing for this page still shows it.
function chosenTheme() {
  try { return localStorage.getItem("theme"); } catch { return null; }
}

const isDark = () => (document.documentElement.dataset.theme || (night.matches ? "dark" : "light")) === "dark";

if (chosenTheme()) document.documentElement.dataset.theme = chosenTheme();

addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  const changed = () => {
    button.setAttribute("aria-pressed", isDark());
    document.dispatchEvent(new Event("theme"));
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch { /* not kept */ }
    changed();
  });
  night.addEventListener("change", changed);
  changed();
});
