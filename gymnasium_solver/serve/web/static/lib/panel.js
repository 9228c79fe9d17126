// A chart of one metric with its name, its value under the cursor, a star to pin it, its numbers as a
// table, and a view of the whole window. Panels with one `syncKey` share their cursor.
import { html, useEffect, useMemo, useRef, useSignal, useState } from "../vendor/ui.js";
import { Chart } from "./chart.js";
import { short, value } from "./format.js";
import { kept } from "./kept.js";
import { colourVar } from "./palette.js";

const MOST_VALUES = 4;
const pinned = kept("pinned", []);
const closed = kept("closed-groups", []);
const columns = kept("panel-columns", 3);
const toggle = (list, one) => { list.value = list.value.includes(one) ? list.value.filter((x) => x !== one) : [...list.value, one]; };

/** The metrics that tell most of a training, each the first one that was logged. */
const KEY = [
  ["val/roll/ep_rew/mean"], ["train/roll/ep_rew/mean"], ["train/roll/ep_len/mean", "val/roll/ep_len/mean"],
  ["train/opt/policy/entropy", "train/opt/policy/alpha", "train/hp/epsilon"], ["train/opt/ppo/approx_kl", "train/opt/q/mean"],
  ["train/opt/value/explained_var", "train/opt/loss/value", "train/opt/loss/critic", "train/opt/loss/td"],
  ["train/sys/timing/fps_instant", "train/sys/timing/fps"],
];

/** Names of the key metrics among those known, then the pinned ones. */
export function keyMetrics(known) {
  const names = new Set(known);
  const found = KEY.map((choices) => choices.find((name) => names.has(name))).filter(Boolean);
  return [...new Set([...found, ...pinned.value.filter((name) => names.has(name))])];
}

/** Since when a line has been NaN or infinite; undefined if its last value is finite. */
export function badSince(line) {
  const since = line.bad?.at(-1);
  if (since === undefined) return undefined;
  for (let i = line.y.length - 1; i >= 0; i--) if (line.y[i] !== null && line.y[i] !== undefined) return since > line.x[i] ? since : undefined;
  return since;
}

const lastOf = (line) => { for (let i = line.y.length - 1; i >= 0; i--) if (line.y[i] !== null && line.y[i] !== undefined) return line.y[i]; return null; };

/** The values under the cursor, otherwise the last ones. */
function Readout({ at, lines, unit }) {
  const shown = lines.filter((line) => !line.faint);
  const found = at.value;
  const bad = shown.map(badSince).filter((x) => x !== undefined);
  if (!found && bad.length) return html`<b class="bad" title=${`NaN or infinite since ${short(Math.min(...bad))}`}>NaN since ${short(Math.min(...bad))}</b>`;
  const rows = found ? shown.flatMap((line) => found.rows.filter((row) => row.key === line.key)) : shown.map((line) => ({ key: line.key, colour: line.colour, y: lastOf(line) }));
  if (rows.length > MOST_VALUES) return html`<span class="quiet">${shown.length} lines</span>`;
  return html`<span class="readout">${rows.map((row) => html`<b key=${row.key}>${shown.length > 1 && html`<i class="dot" style=${{ background: colourVar(row.colour) }}></i>`}${value(row.y)}</b>`)}</span>${unit && html`<span class="quiet">${unit}</span>`}${found && html`<span class="quiet">at ${short(found.x)}</span>`}`;
}

export function Panel({ metric, lines, level = null, axes, xLabel, syncKey, error = "", isLoaded = true, height = 170, tools = null, note = null }) {
  const [isTable, setTable] = useState(false);
  const [isFull, setFull] = useState(false);
  const at = useSignal(null);
  const isPinned = pinned.value.includes(metric.name);
  const title = metric.label || metric.name;
  const chart = (size, key) => html`<${Chart} label=${title} lines=${lines} level=${level} height=${size} logX=${axes.logX} logY=${axes.logY} xLabel=${xLabel} syncKey=${key} onCursor=${(found) => { at.value = found; }} />`;
  return html`<header><h3 title=${`${metric.name}: ${metric.description ?? ""}`}>${title}</h3><span class="grow"></span><${Readout} at=${at} lines=${lines} unit=${metric.unit} />${tools}
      <span class="panel-tools"><button class="plain small" aria-pressed=${isPinned} title=${isPinned ? "Remove from the key metrics" : "Keep among the key metrics"} aria-label=${`Pin ${metric.name}`} onClick=${() => toggle(pinned, metric.name)}>${isPinned ? "★" : "☆"}</button>
        <button class="plain small" aria-pressed=${isTable} title="Show the numbers" aria-label=${`Show the numbers of ${metric.name}`} onClick=${() => setTable(!isTable)}>▦</button>
        <button class="plain small" title="Fill the window" aria-label=${`Show ${metric.name} in the whole window`} onClick=${() => setFull(true)}>⤢</button></span></header>
    <div class="body">${error && html`<p class="bad" role="alert">${error}</p>`}
      ${isTable ? html`<${Numbers} lines=${lines} xLabel=${xLabel} />` : isLoaded || lines.length ? chart(height, syncKey) : html`<p class="chart no-values quiet" style=${{ minHeight: `${height}px` }}>Loading…</p>`}
      ${note}</div>
    ${isFull && html`<${Full} title=${title} metric=${metric} onClose=${() => setFull(false)}>${chart(Math.max(240, innerHeight - 190), undefined)}<//>`}`;
}

function Numbers({ lines, xLabel }) {
  const shown = lines.filter((line) => !line.faint);
  const rows = useMemo(() => shown.flatMap((line) => line.x.map((x, i) => [line, x, line.y[i]])), [lines]);
  return html`<div class="scroll numbers" tabindex="0"><table><thead><tr>${shown.length > 1 && html`<th>line</th>`}<th class="num">${xLabel}</th><th class="num">value</th></tr></thead><tbody>${rows.slice(0, 5000).map(([line, x, y], i) => html`<tr key=${i}>${shown.length > 1 && html`<td>${line.label}</td>`}<td class="num">${value(x)}</td><td class="num">${y === null || y === undefined ? "NaN" : value(y)}</td></tr>`)}</tbody></table></div>`;
}

function Full({ title, metric, onClose, children }) {
  const ref = useRef(null);
  useEffect(() => { ref.current.showModal(); }, []);
  return html`<dialog ref=${ref} class="full-chart" aria-label=${title} onClose=${onClose}><div class="dialog"><div class="dialog-head"><h2>${title}</h2><button class="plain" aria-label="Close" onClick=${() => ref.current.close()}>✕</button></div>${children}<p class="quiet about">${metric.description}</p></div></dialog>`;
}

/** A group of panels that stays closed where it was closed. */
export function PanelGroup({ name, count, children }) {
  const isOpen = !closed.value.includes(name);
  return html`<details class="metric-group" open=${isOpen} onToggle=${(event) => { if (event.target.open === closed.value.includes(name)) toggle(closed, name); }}><summary><h2>${name}</h2> <span class="quiet">${count}</span></summary>
    ${isOpen && html`<div class="panels" style=${{ "--columns": columns.value }}>${children}</div>`}</details>`;
}

export const ColumnsChoice = () => html`<span class="seg wide-only" role="group" aria-label="Columns">${[2, 3, 4].map((n) => html`<button key=${n} class="small" aria-pressed=${columns.value === n} title=${`${n} columns`} onClick=${() => { columns.value = n; }}>${n}</button>`)}</span>`;
