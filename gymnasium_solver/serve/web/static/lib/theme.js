// Light and dark. `theme` is what is shown now; charts read their colours from CSS when it changes.
import { signal } from "../vendor/ui.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => document.documentElement.dataset.theme;
const current = () => chosen() ?? (system.matches ? "dark" : "light");

export const theme = signal(current());
system.addEventListener("change", () => { theme.value = current(); });

export function toggleTheme() {
  const next = current() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("gsolve-theme", next); } catch { /* storage may be off */ }
  theme.value = next;
}

/** The value of a CSS variable, such as "--text". */
export const cssVar = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();
