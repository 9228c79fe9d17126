// Charts of one run: the returns, and a panel for every metric.
import { html, useMemo, useRef, useState } from "../vendor/ui.js";
import { Chart } from "../lib/chart.js";
import { configText, short, value } from "../lib/format.js";
import { ColumnsChoice, Panel, PanelGroup, keyMetrics } from "../lib/panel.js";
import { Select } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { useSeen, useSeries } from "../lib/series.js";

const TRAIN = "train/roll/ep_rew/mean", VAL = "val/roll/ep_rew/mean", STD = "val/roll/ep_rew/std", TEST = "test/roll/ep_rew/mean";
export const X_AXES = [["env_steps", "env steps"], ["wall_s", "wall time"], ["epoch", "epoch"]];
export const X_LABEL = { env_steps: "env steps", wall_s: "s", epoch: "epochs" };

/** The choices that all charts of a page share. */
export const Axes = ({ axes }) => html`<div class="row axes"><${Select} label="x" value=${axes.x} options=${X_AXES} onChange=${(x) => setQuery({ x: x === "env_steps" ? "" : x })} />
  <label class="field"><span>smooth</span><input type="range" min="0" max="0.99" step="0.01" value=${axes.smooth} aria-valuetext=${String(axes.smooth)} onInput=${(e) => setQuery({ smooth: Number(e.target.value) || "" })} /><output>${axes.smooth}</output></label>
  <span class="seg" role="group" aria-label="Logarithmic axes"><button class="small" aria-pressed=${axes.logX} onClick=${() => setQuery({ logx: axes.logX ? "" : "1" })}>log x</button><button class="small" aria-pressed=${axes.logY} onClick=${() => setQuery({ logy: axes.logY ? "" : "1" })}>log y</button></span></div>`;

const options = (axes, points) => ({ x: axes.x, smooth: axes.smooth || undefined, points });

/** A smoothed line with its raw line behind it, or the raw line alone. */
export function linesOf(series, { key, label, colour, smooth, width, faintRaw = true }) {
  if (!smooth || !series.smooth) return [{ key, label, colour, x: series.x, y: series.y, lo: series.lo, hi: series.hi, bad: series.bad, width }];
  return [...(faintRaw ? [{ key: `${key}/raw`, label, colour, x: series.x, y: series.y, faint: true, width: 1 }] : []), { key, label, colour, x: series.x, y: series.smooth, bad: series.bad, width: width ?? 2 }];
}

/** "policy_lr 0.003 → 0.0001": a change of fields while the run trained. */
export const editText = (edit) => Object.entries(edit.changed ?? {}).map(([name, now]) => `${name} ${edit.before && name in edit.before ? `${configText(edit.before[name])} → ` : ""}${configText(now)}`).join(", ");

export function ReturnChart({ run, detail, axes, version, onMark, height = 300 }) {
  const wanted = options(axes, 900);
  const train = useSeries([run.id], TRAIN, wanted, version), val = useSeries([run.id], VAL, wanted, version), std = useSeries([run.id], STD, { ...wanted, smooth: undefined }, version), test = useSeries([run.id], TEST, { ...wanted, smooth: undefined }, version);
  const lines = useMemo(() => {
    const list = [];
    if (train.series[0]) list.push(...linesOf(train.series[0], { key: "train", label: "training episodes", colour: 6, smooth: axes.smooth, width: 1.25 }));
    if (val.series[0]) {
      const spread = new Map(std.series[0]?.x.map((x, i) => [x, std.series[0].y[i]]));
      const own = linesOf(val.series[0], { key: "val", label: "evaluations (± std)", colour: 0, smooth: axes.smooth, width: 2.25 });
      const last = own.at(-1);
      const s = last.x.map((x) => spread.get(x) ?? null);
      if (!axes.smooth && s.some((v) => v !== null)) { last.lo = last.y.map((y, i) => (s[i] === null ? null : y - s[i])); last.hi = last.y.map((y, i) => (s[i] === null ? null : y + s[i])); }
      list.push(...own);
    }
    if (test.series[0]?.x.length) list.push({ key: "test", label: "held-out test", colour: 1, x: test.series[0].x, y: test.series[0].y, width: 0, dash: null });
    return list;
  }, [train, val, std, test, axes.smooth]);
  const marks = useMemo(() => (axes.x !== "env_steps" ? [] : [
    ...detail.alerts.map((alert) => ({ x: alert.first_env_steps, kind: "alert", name: alert.name, text: `${alert.name}: ${alert.text} Try: ${alert.advice}`, sign: "!" })),
    ...detail.changes.filter((edit) => edit.kind === "config").map((edit) => ({ x: edit.env_steps, kind: "edit", name: edit.env_steps, text: `changed at ${short(edit.env_steps)}: ${editText(edit)}`, sign: "✎" })),
    ...run.checkpoints.map((c) => ({ x: c.env_steps, kind: "checkpoint", name: c.env_steps, text: c.best ? `best checkpoint, at ${short(c.env_steps)} env steps: inspect it` : c.last ? `last checkpoint, at ${short(c.env_steps)} env steps: inspect it` : "", sign: c.best ? "★" : "•" })),
  ]), [detail.alerts, detail.changes, run.checkpoints, axes.x]);
  if (train.loaded && val.loaded && lines.length === 0) return html`<p class="quiet">No metrics are logged yet.</p>`;
  return html`<${Chart} label=${`Returns of ${run.id}`} lines=${lines} marks=${marks} level=${run.threshold} height=${height} logX=${axes.logX} logY=${axes.logY} xLabel=${X_LABEL[axes.x]} onMark=${onMark} />
    <p class="quiet keys-line"><span class="k k0"></span>evaluations (± std) <span class="k k6"></span>training episodes ${test.series[0]?.x.length > 0 && html`<span class="k point"></span>held-out test`} ${run.threshold !== null && html`<span class="k dashed"></span>solved at ${value(run.threshold)}`} <span class="wide-only">· drag to zoom, double click to reset</span></p>`;
}

export function MetricPanels({ run, detail, axes, version }) {
  const [text, setText] = useState("");
  const words = text.trim().toLowerCase();
  const byName = useMemo(() => new Map(detail.metrics.map((metric) => [metric.name, metric])), [detail.metrics.length]);
  const groups = useMemo(() => {
    const found = new Map();
    for (const metric of detail.metrics) {
      if (!`${metric.name} ${metric.label ?? ""}`.toLowerCase().includes(words)) continue;
      const group = metric.group || metric.name.split("/").slice(0, 2).join("/");
      if (!found.has(group)) found.set(group, []);
      found.get(group).push(metric);
    }
    return [...found].sort(([a], [b]) => order(a) - order(b));
  }, [detail.metrics.length, words]);
  const key = words ? [] : keyMetrics(byName.keys()).map((name) => byName.get(name));
  const panel = (metric) => html`<${MetricPanel} key=${metric.name} run=${run} metric=${metric} axes=${axes} version=${version} />`;
  return html`<div class="row toolbar"><input type="search" placeholder="Search the metrics" aria-label="Search the metrics" value=${text} onInput=${(e) => setText(e.target.value)} /><span class="quiet">${detail.metrics.length} metrics</span><span class="grow"></span><${ColumnsChoice} /><${Axes} axes=${axes} /></div>
    ${key.length > 0 && html`<${PanelGroup} name="Key" count=${key.length}>${key.map(panel)}<//>`}
    ${groups.map(([group, metrics]) => html`<${PanelGroup} key=${group} name=${group} count=${metrics.length}>${metrics.map(panel)}<//>`)}
    ${groups.length === 0 && html`<p class="empty">${words ? "No metric matches." : "No metrics are logged yet."}</p>`}`;
}

const FIRST = ["val/roll", "train/roll", "test/roll", "train/opt"];
const order = (group) => { const at = FIRST.findIndex((f) => group.startsWith(f)); return at < 0 ? FIRST.length : at; };

function MetricPanel({ run, metric, axes, version }) {
  const ref = useRef(null);
  const seen = useSeen(ref);
  const { series, error, loaded } = useSeries([run.id], metric.name, options(axes, 500), version, seen);
  const lines = useMemo(() => (series[0] ? linesOf(series[0], { key: metric.name, label: metric.label || metric.name, colour: 0, smooth: axes.smooth }) : []), [series, axes.smooth]);
  return html`<section class="panel metric" ref=${ref} data-metric=${metric.name}><${Panel} metric=${metric} lines=${lines} axes=${axes} xLabel=${X_LABEL[axes.x]} syncKey=${`run-${run.id}`} error=${error} isLoaded=${loaded}
    note=${metric.description && html`<p class="quiet about">${metric.description} <code>${metric.name}</code></p>`} /></section>`;
}

const USAGE = ["train/sys/timing/fps_instant", "train/sys/cpus", "train/sys/memory", "train/sys/gpu_memory", "train/sys/load"];

/** Speed and what the training takes of the machine, over time. */
export function Usage({ run, detail, axes, version }) {
  const known = USAGE.map((name) => detail.metrics.find((metric) => metric.name === name)).filter(Boolean);
  if (!known.length) return null;
  return html`<section class="panel" data-part="usage"><header><h2>Speed and machine</h2></header><div class="body usage">${known.map((metric) => html`<${UsageChart} key=${metric.name} run=${run} metric=${metric} axes=${axes} version=${version} />`)}</div></section>`;
}

function UsageChart({ run, metric, axes, version }) {
  const { series } = useSeries([run.id], metric.name, options({ ...axes, smooth: 0 }, 300), version);
  const lines = useMemo(() => (series[0] ? linesOf(series[0], { key: metric.name, label: metric.label || metric.name, colour: 2, smooth: 0, width: 1.5 }) : []), [series]);
  return html`<div title=${metric.description}><p class="row"><span>${metric.label || metric.name}</span><span class="grow"></span><b>${value(metric.last)}</b> <span class="quiet">${metric.unit}</span></p><${Chart} label=${metric.label || metric.name} lines=${lines} height=${92} xLabel=${X_LABEL[axes.x]} /></div>`;
}
