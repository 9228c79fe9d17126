// What a visitor chose and this browser keeps: pinned metrics, closed groups, columns of panels.
import { signal } from "../vendor/ui.js";

/** A signal that is kept under a name; `set` changes it. */
export function kept(name, otherwise) {
  const key = `gsolve-${name}`;
  let known = otherwise;
  try { known = JSON.parse(localStorage.getItem(key)) ?? otherwise; } catch { /* storage may be off */ }
  const value = signal(known);
  const set = (next) => {
    value.value = next;
    try { localStorage.setItem(key, JSON.stringify(next)); } catch { /* storage may be off */ }
  };
  return { value, set, toggle: (one) => set(value.value.includes(one) ? value.value.filter((x) => x !== one) : [...value.value, one]) };
}

export const pinned = kept("pinned", []);
export const closed = kept("closed-groups", []);
export const columns = kept("panel-columns", 3);
