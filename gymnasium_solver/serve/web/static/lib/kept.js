// What the browser keeps for the next visit: chosen runs, views, whether notices are wanted.
import { signal } from "../vendor/ui.js";

/**
 * A signal whose value is kept under a name, as JSON. `storage`: "local" for all tabs and visits,
 * "session" for this tab.
 */
export function kept(name, initial, storage = "local") {
  const place = () => (storage === "local" ? localStorage : sessionStorage);
  let start = initial;
  try { start = JSON.parse(place().getItem(`gsolve-${name}`)) ?? initial; } catch { /* storage may be off, or hold another's value */ }
  const value = signal(start);
  value.subscribe((now) => { try { place().setItem(`gsolve-${name}`, JSON.stringify(now)); } catch { /* it may be off, or full */ } });
  return value;
}
