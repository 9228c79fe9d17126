// How values are spread in a run: actions and TD errors over the training, values, episode returns.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { get } from "../lib/api.js";
import { Chart } from "../lib/chart.js";
import { count, short, value } from "../lib/format.js";
import { colour } from "../lib/palette.js";
import { useSeries } from "../lib/series.js";
import { cssVar, theme } from "../lib/theme.js";
import { X_LABEL } from "./run-charts.js";

const ACTIONS = "train/roll/actions/hist/", VALUE = "train/roll/baseline/", RETURN = "train/roll/return/";
const ERRORS = "train/opt/td_error/hist/", Q = "train/opt/q/percentile/";
const BARS = 20, ROW = 22, LEFT = 110, BOTTOM = 20;

export function Spread({ run, detail, axes, version }) {
  const has = (prefix) => detail.metrics.some((metric) => metric.name.startsWith(prefix));
  return html`<div class="panels spread">
    ${has(ACTIONS) && html`<${HeatMap} run=${run} detail=${detail} axes=${axes} version=${version} prefix=${ACTIONS} title="Actions" what="Share of each action" labelsOf=${actionLabels}
      about="Share of each action in the training data, from left to right over the training; for continuous actions, of each part of the range." />`}
    ${has(VALUE) && html`<${ValueBands} run=${run} axes=${axes} version=${version} />`}
    ${has(Q) && html`<${QBands} run=${run} axes=${axes} version=${version} />`}
    ${has(ERRORS) && html`<${HeatMap} run=${run} detail=${detail} axes=${axes} version=${version} prefix=${ERRORS} title="TD errors" what="Share of the TD errors" labelsOf=${errorLabels}
      about="Histogram of the TD errors (target minus value) of a batch, in standard deviations around their mean, from left to right over the training; the outer rows have the tails. Mean and deviation are the curves train/opt/td_error/mean and std." />`}
    <${EpisodeReturns} run=${run} n=${detail.evaluations.length} />
  </div>`;
}

/** Numbers in order: hist/2 before hist/10. */
const inOrder = (a, b) => a.localeCompare(b, "en", { numeric: true });

function actionLabels(detail, bins) {
  const labels = detail.config?.spec?.action_space?.labels;
  const of = (i) => (Array.isArray(labels) ? labels[i] : labels?.[i] ?? labels?.[String(i)]);
  return bins.map((bin, i) => String(of(i) ?? bin));
}

/** From -3 to 3 standard deviations. */
function errorLabels(detail, bins) {
  const edge = (i) => (-3 + (6 * i) / bins.length).toFixed(1);
  return bins.map((_, i) => `${edge(i)} to ${edge(i + 1)} σ`);
}

/** One row per bin, one column per point; the darker, the larger its share. */
function HeatMap({ run, detail, axes, version, prefix, title, what, labelsOf, about }) {
  const names = useMemo(() => detail.metrics.map((m) => m.name).filter((n) => n.startsWith(prefix)).sort(inOrder), [detail.metrics.length]);
  const [lines, setLines] = useState([]);
  const [under, setUnder] = useState("");
  const canvas = useRef(null);
  useEffect(() => {
    let isCurrent = true;
    get("series", { runs: [run.id], metrics: names, x: axes.x, points: 200 }).then((got) => { if (isCurrent) setLines(names.map((n) => got.series.find((s) => s.metric === n)).filter(Boolean)); }, () => {});
    return () => { isCurrent = false; };
  }, [names, axes.x, version]);
  const labels = labelsOf(detail, lines.map((line) => line.metric.slice(prefix.length)));
  const n = lines[0]?.x.length ?? 0;
  useEffect(() => { if (n) paint(canvas.current, lines, labels); }, [lines, theme.value]);
  const point = (event) => {
    const box = event.target.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / ROW), column = Math.floor(((event.clientX - box.left - LEFT) / (box.width - LEFT)) * n);
    const share = lines[row]?.y[column];
    setUnder(share === undefined || share === null ? "" : `${labels[row]}: ${Math.round(1000 * share) / 10} % at ${short(lines[row].x[column])} ${X_LABEL[axes.x]}`);
  };
  const last = lines.map((line, i) => `${labels[i]} ${Math.round(100 * (line.y.at(-1) ?? 0))} %`).join(", ");
  return html`<section class="panel" data-spread=${title}><header><h2>${title}</h2><span class="grow"></span><span class="quiet">${under}</span></header><div class="body">
    ${n > 0 && html`<canvas ref=${canvas} class="heat" role="img" aria-label=${`${what} over the training; at the end: ${last}`} onMouseMove=${point} onMouseLeave=${() => setUnder("")} style=${{ height: `${ROW * lines.length + BOTTOM}px` }}></canvas>`}
    <p class="quiet about">${about}</p></div></section>`;
}

function paint(canvas, lines, labels) {
  const scale = devicePixelRatio, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale; canvas.height = height * scale;
  const ctx = canvas.getContext("2d");
  ctx.scale(scale, scale);
  ctx.clearRect(0, 0, width, height);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  const xs = lines[0].x, step = (width - LEFT) / xs.length;
  const edge = (i) => Math.round((LEFT + i * step) * scale) / scale;  // whole pixels: no seams
  lines.forEach((line, row) => {
    ctx.globalAlpha = 1;
    ctx.fillStyle = cssVar("--quiet");
    ctx.textAlign = "right";
    ctx.fillText(labels[row].slice(0, 17), LEFT - 8, ROW * (row + 0.5));
    ctx.fillStyle = colour(0);
    line.y.forEach((share, i) => { ctx.globalAlpha = Math.min(1, Math.max(0, share ?? 0)); ctx.fillRect(edge(i), ROW * row + 1, edge(i + 1) - edge(i), ROW - 2); });
  });
  ctx.globalAlpha = 1;
  ctx.fillStyle = cssVar("--quiet");
  ctx.textAlign = "left"; ctx.fillText(short(xs[0]), LEFT, height - BOTTOM / 2);
  ctx.textAlign = "right"; ctx.fillText(short(xs.at(-1)), width, height - BOTTOM / 2);
}

/** What the critic expects beside the returns it is fitted to, each with its deviation. */
function ValueBands({ run, axes, version }) {
  const wanted = { x: axes.x, points: 500 };
  const parts = [[VALUE, "values", 0], [RETURN, "returns they are fitted to", 1]].map(([prefix, label, place]) => ({ label, place, mean: useSeries([run.id], `${prefix}mean`, wanted, version).series[0], std: useSeries([run.id], `${prefix}std`, wanted, version).series[0] }));
  const lines = parts.filter((part) => part.mean).map(({ label, place, mean, std }) => {
    const spread = mean.x.map((_, i) => std?.y[i] ?? null);
    return { key: label, label, colour: place, x: mean.x, y: mean.y, lo: mean.y.map((y, i) => (y === null || spread[i] === null ? null : y - spread[i])), hi: mean.y.map((y, i) => (y === null || spread[i] === null ? null : y + spread[i])) };
  });
  return html`<section class="panel" data-spread="values"><header><h2>Values and returns</h2></header><div class="body"><${Chart} label="Values and the returns they are fitted to" lines=${lines} height=${200} xLabel=${X_LABEL[axes.x]} />
    <p class="quiet keys-line"><span class="k k0"></span>values <span class="k k1"></span>returns they learn (± std)</p></div></section>`;
}

/** Q-values of a batch: the median, the middle half and nine tenths. */
function QBands({ run, axes, version }) {
  const wanted = { x: axes.x, points: 500 };
  const [low, quarter, median, upper, high] = ["05", "25", "50", "75", "95"].map((p) => useSeries([run.id], `${Q}${p}`, wanted, version).series[0]);
  const band = (key, label, colour, line, lo, hi) => line && { key, label, colour, x: line.x, y: line.y, lo: lo?.y ?? [], hi: hi?.y ?? [] };
  const lines = [band("90", "5 % to 95 %", 1, median, low, high), band("50", "median, 25 % to 75 %", 0, median, quarter, upper)].filter(Boolean);
  return html`<section class="panel" data-spread="q"><header><h2>Q-values</h2></header><div class="body"><${Chart} label="Q-values of a batch" lines=${lines} height=${200} xLabel=${X_LABEL[axes.x]} />
    <p class="quiet keys-line"><span class="k k0"></span>median, 25 % to 75 % <span class="k k1"></span>5 % to 95 %</p></div></section>`;
}

/** Returns of whole episodes: of the held-out test as bars, of the validations as quantiles. */
function EpisodeReturns({ run, n }) {
  const [evaluations, setEvaluations] = useState(null);
  useEffect(() => {
    let isCurrent = true;
    get(`runs/${encodeURIComponent(run.id)}/returns`).then((got) => { if (isCurrent) setEvaluations(got.evaluations); }, () => { if (isCurrent) setEvaluations([]); });
    return () => { isCurrent = false; };
  }, [run.id, n]);
  if (evaluations === null) return null;
  const test = evaluations.filter((e) => e.stage === "test").at(0), val = evaluations.filter((e) => e.stage === "val");
  if (!evaluations.length) return html`<section class="panel"><header><h2>Returns of episodes</h2></header><div class="body quiet">No evaluation yet.</div></section>`;
  return html`${test && html`<${Histogram} test=${test} />`}${val.length > 1 && html`<${Quantiles} val=${val} threshold=${run.threshold} />`}`;
}

function Histogram({ test }) {
  const low = Math.min(...test.returns), high = Math.max(...test.returns), width = (high - low) / BARS || 1;
  const counts = Array(high > low ? BARS : 1).fill(0);
  for (const r of test.returns) counts[Math.min(counts.length - 1, Math.floor((r - low) / width))]++;
  const most = Math.max(...counts);
  if (high === low) return html`<section class="panel" data-spread="test"><header><h2>Returns of the held-out test</h2></header><div class="body"><p>${test.returns.length === 1 ? "the only episode" : `all ${count(test.returns.length)}`}: <b>${value(low)}</b></p></div></section>`;
  const range = (i) => (high > low ? `${value(low + i * width)} to ${value(low + (i + 1) * width)}` : value(low));
  return html`<section class="panel" data-spread="test"><header><h2>Returns of the held-out test</h2><span class="grow"></span><span class="quiet">${count(test.returns.length)} episodes</span></header><div class="body">
    <div class="bars" role="img" aria-label=${`Returns of ${test.returns.length} episodes, from ${value(low)} to ${value(high)}`}>${counts.map((c, i) => html`<i key=${i} title=${`${range(i)}: ${c} episodes`} style=${{ height: `${(100 * c) / most}%` }}></i>`)}</div>
    <p class="row quiet ends"><span>${value(low)}</span><span class="grow"></span><span>${value(high)}</span></p></div></section>`;
}

const quantile = (sorted, q) => { const at = q * (sorted.length - 1), i = Math.floor(at); return sorted[i] + (at - i) * ((sorted[i + 1] ?? sorted[i]) - sorted[i]); };

function Quantiles({ val, threshold }) {
  const lines = useMemo(() => {
    const sorted = val.map((e) => [...e.returns].sort((a, b) => a - b)), x = val.map((e) => e.env_steps);
    return [{ key: "median", label: "median (10 % to 90 %)", colour: 0, x, y: sorted.map((s) => quantile(s, 0.5)), lo: sorted.map((s) => quantile(s, 0.1)), hi: sorted.map((s) => quantile(s, 0.9)) }, { key: "worst", label: "worst episode", colour: 6, x, y: sorted.map((s) => s[0]), width: 1 }];
  }, [val]);
  return html`<section class="panel" data-spread="validation"><header><h2>Returns of the validations</h2></header><div class="body"><${Chart} label="Quantiles of the returns of the validations" lines=${lines} level=${threshold} height=${200} />
    <p class="quiet keys-line"><span class="k k0"></span>median, band from 10 % to 90 % <span class="k k6"></span>worst episode</p></div></section>`;
}
