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

const MADE = /-((?:\d\d-)?(?:s\d+-)?\d{8}-\d{6}-[0-9a-f]{4})$/;

/** The end of an id tells runs of one config apart: in an experiment the place of the config and the
 * seed, then date, time and four digits. */
export const shortId = (id) => MADE.exec(id)?.[1] ?? id;

/** What a run is called: the name that the user typed, or else its config. */
export const title = (run) => (run.status === "broken" || !MADE.test(run.id) ? run.id : name(run));

/** Seconds of training; of a run in training they go on between its rows. */
export function elapsed(run, now = Date.now()) {
  const since = run.status === "running" && run.activity?.row_at ? now / 1000 - run.activity.row_at : 0;
  return run.wall_s + Math.max(0, since);
}

/** "testing 12 of 30" during a long evaluation, else "". */
export const phase = (run) => (run.status === "running" && run.activity?.phase ? run.activity.of ? `${run.activity.phase} ${run.activity.done} of ${run.activity.of}` : run.activity.phase : "");

/** Seconds until the budget is used up, if that can be told. */
export function timeLeft(run) {
  const share = run.max_env_steps ? run.env_steps / run.max_env_steps : 0;
  return run.status === "running" && share > 0 && share < 1 && run.wall_s ? (run.wall_s * (1 - share)) / share : null;
}
