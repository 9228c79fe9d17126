// Light and dark. `theme` is what is shown now; charts read their colours from CSS when it changes.
import { effect, signal } from "../vendor/ui.js";

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

const known = new Map();  // of the theme that is shown
effect(() => { theme.value; known.clear(); });

/** The value of a CSS variable, such as "--text". It is kept: a chart asks for each of its lines. */
export function cssVar(name) {
  if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return known.get(name);
}
