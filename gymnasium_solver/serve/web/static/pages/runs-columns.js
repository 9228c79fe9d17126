// The columns of the table of runs: what a cell shows of a run, and of a group of seeds.
import { html } from "../vendor/ui.js";
import { ago, configText, count, fieldText, seconds, short, spread, value } from "../lib/format.js";
import { Status } from "../lib/parts.js";
import { href, place, setQuery } from "../lib/router.js";
import { elapsed, name, phase, timeLeft, title } from "../lib/runs-store.js";
import { Sparkline } from "../lib/sparklines.js";

export const IS_PHONE = matchMedia("(max-width: 720px)").matches;

/** `field=value` as it is written in the filter. */
export const condition = (field, v) => {
  const text = configText(v);
  return /[\s"']/.test(text) ? `"${field}=${text.replaceAll('"', '\\"')}"` : `${field}=${text}`;
};

/** Add a condition to the filter. */
export function narrow(word) {
  const q = place.value.query.get("q") ?? "";
  if (!q.split(/\s+/).includes(word)) setQuery({ q: `${q} ${word}`.trim() }, { replace: false });
}

const Value = ({ field, of, strong }) => html`<button class=${`pick ${strong ? "" : "quiet"}`} title=${`Show only ${condition(field, of)}`} onClick=${() => narrow(condition(field, of))}>${strong ? html`<b>${fieldText(of)}</b>` : fieldText(of)}</button>`;

/** What differs from the shipped config; first what the runs shown do not share. */
function Changed({ run, differing }) {
  if (run.changed === null) return html`<span class="quiet">own config</span>`;
  const names = Object.keys(run.changed);
  const mine = differing.get(name(run)) ?? new Set();
  const order = [...names.filter((n) => mine.has(n)), ...names.filter((n) => !mine.has(n))];
  return html`<span class="changed" title=${order.map((n) => `${n}: ${configText(run.changed[n])}`).join("\n")}>${order.map((n) => html`<span key=${n} class="pair"><span class="quiet">${n}</span> <${Value} field=${n} of=${run.changed[n]} strong=${mine.has(n)} /></span>`)}</span>`;
}

/** Name of a config -> the fields in which its runs differ. */
export function differingFields(rows) {
  const seen = new Map();
  for (const run of rows) {
    if (!run.changed) continue;
    const own = seen.get(name(run)) ?? { n: 0, fields: new Map() };
    own.n += 1;
    for (const [field, v] of Object.entries(run.changed)) {
      const values = own.fields.get(field) ?? new Map();
      const text = configText(v);
      values.set(text, (values.get(text) ?? 0) + 1);
      own.fields.set(field, values);
    }
    seen.set(name(run), own);
  }
  const found = new Map();
  for (const [config, { n, fields }] of seen) {
    // A field that some runs do not list has the shipped value there.
    found.set(config, new Set([...fields].filter(([, values]) => values.size > 1 || [...values.values()][0] < n).map(([field]) => field)));
  }
  return found;
}

function Progress({ run, clock }) {
  const share = run.max_env_steps ? Math.min(1, run.env_steps / run.max_env_steps) : null;
  const hint = `${count(run.env_steps)} of ${count(run.max_env_steps)} env steps`;
  if (run.status !== "running" || share === null) return html`<span title=${hint}>${short(run.env_steps)}</span>`;
  const left = timeLeft(run);
  const doing = phase(run) || (left === null ? `${Math.round(100 * share)} %` : `${seconds(Math.max(0, left - (elapsed(run, clock) - run.wall_s)))} left`);
  return html`<span class="progress" title=${hint}><i class="track" role="progressbar" aria-label="Share of the budget" aria-valuenow=${Math.round(100 * share)} aria-valuemin="0" aria-valuemax="100"><i style=${{ width: `${100 * share}%` }}></i></i><span>${doing}</span></span>`;
}

const runLink = (run) => html`<a href=${href(`runs/${encodeURIComponent(run.id)}`)} title=${run.id}>${title(run)}</a>${title(run) !== name(run) && run.status !== "broken" && html` <span class="quiet wide-only">${name(run)}</span>`}`;
const score = (mean, error) => (mean === null || mean === undefined ? "–" : html`<b>${value(mean)}</b>${error !== null && error !== undefined && html` <span class="quiet">± ${spread(error, mean)}</span>`}`);

/**
 * `cell(run, {clock, differing})`, `group(group, context)`; `same(run)`: the value by which a column
 * that says the same everywhere is recognised and left out, unless it was chosen; `fits(rows)`: the
 * width that these runs need.
 */
export const BUILT_IN = {
  status: { title: "status", width: 108, sort: "status", cell: (run) => html`<${Status} run=${run} />`, group: (g) => html`<span class=${`status ${g.solved === g.n ? "good" : g.solved ? "warn" : "quiet"}`}>solved ${g.solved}/${g.n}</span>` },
  run: { title: "run", width: IS_PHONE ? 150 : 220, grow: true, sort: "env", cell: runLink },
  changed: { title: "changed", width: 260, hint: "Fields that are not those of the shipped config; bold: they differ among the runs shown", same: (run) => JSON.stringify(run.changed), cell: (run, { differing }) => html`<${Changed} run=${run} differing=${differing} />`, group: (g, { differing }) => html`<${Changed} run=${g.rows[0]} differing=${differing} />` },
  seed: { title: "seed", width: 104, fits: (rows) => (rows.some((run) => run.seed > 99_999) ? 104 : 68), sort: "seed", num: true, same: (run) => run.seed, cell: (run) => run.seed ?? "–", group: (g) => html`<span class="quiet" title=${`${g.n} different seeds`}>n = ${g.n}</span>` },
  curve: { title: "validation", width: 108, hint: "Returns of the validations over the budget; the line is the threshold", cell: (run) => html`<${Sparkline} runs=${[run]} />`, group: (g) => html`<${Sparkline} runs=${g.rows} />` },
  test: { title: "test", width: IS_PHONE ? 72 : 132, sort: "test", num: true, hint: "Mean return of the held-out test ± standard error; of a group the interquartile mean over its seeds", cell: (run) => (run.test === null ? html`<span class="quiet" title="Not tested yet">–</span>` : score(run.test, IS_PHONE ? null : run.stderr)), group: (g) => html`<span title="Interquartile mean over the seeds">${score(g.iqm, null)} <span class="quiet wide-only">IQM</span></span>` },
  threshold: { title: "solved at", width: 76, sort: "threshold", num: true, cell: (run) => value(run.threshold) },
  best: { title: "best val.", width: 84, sort: "val", num: true, hint: "Highest validation; it chooses the checkpoint and is too high to judge it", cell: (run) => value(run.best) },
  steps: { title: "env steps", width: 168, fits: (rows) => (rows.some((run) => run.status === "running") ? 172 : 92), sort: "steps", num: true, cell: (run, { clock }) => html`<${Progress} run=${run} clock=${clock} />`, group: (g) => html`<span class="quiet">${short(g.rows.reduce((sum, run) => sum + run.env_steps, 0))} in all</span>` },
  time: { title: "time", width: 100, sort: "time", num: true, cell: (run, { clock }) => seconds(elapsed(run, clock)), group: (g, { clock }) => html`<span class="quiet">${seconds(g.rows.reduce((sum, run) => sum + elapsed(run, clock), 0))}</span>` },
  fps: { title: "steps/s", width: 76, sort: "fps", num: true, cell: (run) => (run.wall_s ? short(run.env_steps / run.wall_s) : "–") },
  created: { title: "started", width: 100, sort: "created", cell: (run) => html`<span title=${run.created_at}>${ago(run.created_at)}</span>`, group: (g) => html`<span class="quiet">${ago(g.rows[0].created_at)}</span>` },
  experiment: { title: "experiment", width: 170, sort: "experiment", same: (run) => run.experiment, cell: (run) => run.experiment && html`<a class="light" href=${href(`experiments/${encodeURIComponent(run.experiment)}`)}>${run.experiment}</a>`, group: (g) => g.rows[0].experiment },
  tags: { title: "tags", width: 140, sort: "tag", same: (run) => run.tags.join(" "), cell: (run) => run.tags.map((tag) => html`<button key=${tag} class="tag" title=${`Show only tag=${tag}`} onClick=${() => narrow(`tag=${tag}`)}>${tag}</button> `) },
  note: { title: "note", width: 180, sort: "note", same: (run) => run.note, cell: (run) => html`<span class="quiet" title=${run.note}>${run.note}</span>` },
};

export const DEFAULT = IS_PHONE ? ["run", "test", "status", "changed", "seed", "steps"] : ["status", "run", "changed", "seed", "curve", "test", "best", "steps", "time", "created", "experiment", "tags"];

/** The default columns without those that say the same in every row. */
export function worthShowing(rows, isFolded) {
  return DEFAULT.filter((c) => {
    const same = BUILT_IN[c].same;
    if (!same || (isFolded && c === "seed")) return true;
    const first = rows.length ? same(rows[0]) : null;
    const isEmpty = first === null || first === "" || first === undefined || first === "{}" || first === "null";
    return rows.length > 1 ? rows.some((run) => same(run) !== first) : !isEmpty;
  });
}

/** A column of the config; a click on a value filters. */
export const configColumn = (c, values) => ({ title: c, width: 110, sort: c, num: typeof firstValue(values) === "number", cell: (run) => { const v = values?.get(run.n); return v === null || v === undefined ? html`<span class="quiet">null</span>` : html`<${Value} field=${c} of=${v} strong=${true} />`; } });
const firstValue = (map) => { for (const v of map?.values() ?? []) if (v !== null) return v; return null; };
