// The selected runs, by id: they stay selected while pages change, after a reload, and when the
// server is started again.
import { kept } from "./kept.js";

const ids = kept("selection", [], "session");

export const isSelected = (id) => ids.value.includes(id);
export const selectedIds = () => new Set(ids.value);
export const selectOnly = (some) => { ids.value = [...new Set(some)]; };

export function flip(some, on) {
  const next = selectedIds();
  for (const id of some) if (on) next.add(id); else next.delete(id);
  ids.value = [...next];
}
