// Small curves of the validations, fetched for the rows that are on the screen.
import { html, signal } from "../vendor/ui.js";
import { get } from "./api.js";

/** id -> {key, points}; `key` tells whether a run has changed since. */
const known = signal(new Map());
const wanted = new Map();
let timer = 0;

const keyOf = (run) => (run.status === "running" ? `${run.env_steps}` : run.status);

/** Ask for the curves of some runs; those that are known and have not changed cost nothing. */
export function needSparklines(runs) {
  for (const run of runs) if (known.value.get(run.id)?.key !== keyOf(run)) wanted.set(run.id, keyOf(run));
  if (wanted.size && !timer) timer = setTimeout(load, 120);
}

async function load() {
  const some = [...wanted].slice(-60);
  wanted.clear();
  try {
    const got = await get("sparklines", { runs: some.map(([id]) => id) });
    const next = new Map(known.value);
    for (const [id, key] of some) next.set(id, { key, points: got.lines[id] ?? [] });
    known.value = next;
  } catch { /* a run may have been archived meanwhile */ }
  timer = wanted.size ? setTimeout(load, 120) : 0;
}

const WIDTH = 88, HEIGHT = 20;

/** The curves of one run, or of the seeds of a group, on one scale. */
export function Sparkline({ runs }) {
  const lines = runs.map((run) => known.value.get(run.id)?.points ?? []).filter((line) => line.length);
  if (!lines.length) return html`<span class="quiet">–</span>`;
  const every = lines.flat();
  const most = Math.max(...runs.map((run) => run.max_env_steps ?? 0), ...every.map(([x]) => x));
  const level = runs[0].threshold;
  const values = [...every.map(([, y]) => y), ...(level === null || level === undefined ? [] : [level])];
  const low = Math.min(...values), high = Math.max(...values), range = high - low || 1;
  const px = (x) => ((x / (most || 1)) * (WIDTH - 4) + 2).toFixed(1), py = (y) => (HEIGHT - 3 - ((y - low) / range) * (HEIGHT - 6)).toFixed(1);
  const last = lines[0].at(-1);
  return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`Validations, the last ${last[1].toPrecision(4)}`}>
    ${level !== null && level !== undefined && html`<line class="goal" x1="0" x2=${WIDTH} y1=${py(level)} y2=${py(level)} />`}
    ${lines.slice(0, 8).map((line, i) => (line.length > 1 ? html`<polyline key=${i} points=${line.map(([x, y]) => `${px(x)},${py(y)}`).join(" ")} />` : html`<circle key=${i} cx=${px(line[0][0])} cy=${py(line[0][1])} r="1.8" />`))}</svg>`;
}
