// The list of runs: fetched once, then kept up to date by the stream.
import { batch, signal } from "../vendor/ui.js";
import { get } from "./api.js";
import { follow } from "./stream.js";

/** number -> run; replaced as a whole when something changed. */
export const runs = signal(new Map());
export const loaded = signal(false);
export const listError = signal("");
let cursor = "";

export function take(changes) {
  const next = changes.reset ? new Map() : new Map(runs.value);
  for (const row of changes.rows) {
    const run = {};
    changes.columns.forEach((name, i) => { run[name] = row[i]; });
    next.set(run.n, run);
  }
  for (const n of changes.removed) next.delete(n);
  cursor = changes.cursor;
  batch(() => { runs.value = next; loaded.value = true; listError.value = ""; });
}

export async function refresh() {
  try { take(await get("runs", { cursor })); } catch (error) { listError.value = error.message; }
}

/** Fetch, then follow the list and whatever else; returns the function that stops. */
export function followRuns(params = () => ({}), handlers = {}) {
  let stop = null;
  let isClosed = false;
  refresh().then(() => {
    if (!isClosed) stop = follow(() => ({ cursor: cursor || "none", ...params() }), { runs: take, ...handlers });
  });
  return () => { isClosed = true; stop?.(); };
}

export const name = (run) => `${run.env_id}:${run.variant ?? run.algo_id}`;

/** The end of an id tells runs of one config apart: date, time and four digits. */
export const shortId = (id) => /-(\d{8}-\d{6}-[0-9a-f]{4})$/.exec(id)?.[1] ?? id;
