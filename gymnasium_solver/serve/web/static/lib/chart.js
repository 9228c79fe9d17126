// A line chart over uPlot: bands, raw lines behind smoothed ones, marks, a level, zoom, tooltip.
//
//   html`<${Chart} lines=${[{key, label, colour: 0, x, y, lo, hi, width, faint, bad, ends}]} marks=${[...]} />`
//
// `n` and `of`: how many of several runs a point stands for. `bad` has the x at which a line becomes NaN or infinite; a line with `ends` says so behind its last value.
// The canvas has no DOM, so the counts are in data attributes and every chart offers its table.
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import uPlot from "../vendor/uplot.js";
import { short, tick, value as valueText } from "./format.js";
import { colour, colourVar, dash } from "./palette.js";
import { cssVar, theme } from "./theme.js";

const FONT = "11px system-ui, sans-serif";
const NEAR = 6;  // pixels: this far from a line's ends its last value still counts
const MOST_ROWS = 12;

/** Aligned data and the series that uPlot wants. A line with lo and hi has two more, for its band. */
function layout(lines, { logX, logY }) {
  const tables = [];
  const series = [{ label: "x" }];
  const bands = [];
  for (const line of lines) {
    const keep = logX ? line.x.map((x) => x > 0) : null;
    const pick = (values) => {
      const kept = keep ? values.filter((_, i) => keep[i]) : values;
      return logY ? kept.map((v) => (v > 0 ? v : null)) : kept;
    };
    const x = keep ? line.x.filter((_, i) => keep[i]) : line.x;
    const stroke = colour(line.colour);
    const y = pick(line.y);
    const table = [x, y];
    const first = series.length;
    series.push({
      label: line.label, stroke, width: line.width ?? 1.75, dash: line.dash ?? dash(line.colour) ?? undefined,
      alpha: line.faint ? 0.32 : 1, points: { show: x.length <= 40 && !line.faint, size: 5, fill: stroke },
      key: line.key, line, samples: samplesOf(x, y, line.n),
    });
    if (line.lo && line.hi) {
      table.push(pick(line.hi), pick(line.lo));
      const edge = { stroke: "transparent", width: 0, points: { show: false }, isEdge: true };
      series.push({ ...edge }, { ...edge });
      bands.push({ series: [first + 1, first + 2], fill: `color-mix(in srgb, ${stroke} ${line.faint ? 10 : 18}%, transparent)` });
    }
    tables.push(table);
  }
  const data = tables.length ? uPlot.join(tables) : [[], []];
  return { data, series, bands };
}

function axis(extra) {
  return {
    stroke: cssVar("--quiet"), font: FONT, grid: { stroke: cssVar("--grid"), width: 1 },
    ticks: { stroke: cssVar("--line"), width: 1, size: 4 }, gap: 4, ...extra,
  };
}

function ticks(_, values) {
  const largest = Math.max(...values.map((v) => Math.abs(v ?? 0)));
  return values.map((v) => (v === null ? "" : tick(v, largest)));
}

/** Marks and the level are drawn over the lines. */
function drawHook(state) {
  return (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    const scale = devicePixelRatio;
    ctx.lineWidth = scale;
    if (state.level !== null && state.level !== undefined) {
      const y = u.valToPos(state.level, "y", true);
      if (y >= bbox.top && y <= bbox.top + bbox.height) {
        ctx.strokeStyle = cssVar("--quiet");
        ctx.setLineDash([6 * scale, 4 * scale]);
        ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
      }
    }
    drawBad(u, scale);
    for (const mark of state.marks) {
      const x = u.valToPos(mark.x, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = cssVar(mark.kind === "alert" ? "--alert" : "--quiet");
      ctx.globalAlpha = mark.kind === "alert" ? 0.9 : 0.45;
      ctx.setLineDash([2 * scale, 3 * scale]);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
    }
    ctx.restore();
  };
}

/** Where lines become NaN or infinite: a red line with a word, once per place. */
function drawBad(u, scale) {
  const { ctx, bbox } = u;
  const seen = new Set();
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = cssVar("--bad");
  ctx.font = `${10 * scale}px system-ui, sans-serif`;
  ctx.setLineDash([2 * scale, 2 * scale]);
  for (const { line } of u.series) {
    for (const at of line?.bad ?? []) {
      const x = Math.round(u.valToPos(at, "x", true));
      if (seen.has(x) || x < bbox.left || x > bbox.left + bbox.width) continue;
      seen.add(x);
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      const isRight = x > bbox.left + bbox.width - 30 * scale;
      ctx.textAlign = isRight ? "right" : "left";
      ctx.fillText("NaN", x + (isRight ? -3 : 3) * scale, bbox.top + 10 * scale);
    }
  }
  ctx.restore();
}

/** Positions of the marks as buttons above the canvas: they can be reached with the keyboard. */
function markPlaces(u, marks) {
  const { left, width } = u.bbox;
  return marks.flatMap((mark, i) => {
    const x = u.valToPos(mark.x, "x", true);
    return x < left - 1 || x > left + width + 1 ? [] : [{ ...mark, i, left: x / devicePixelRatio }];
  });
}

const NO_MARKS = [];  // one list: a new one at every call would draw for ever

const hasValue = (line) => line.y.some((v) => v !== null && v !== undefined);

/** A chart, or a sentence where there is nothing to draw. */
export function Chart(props) {
  const { lines, label, height = 220 } = props;
  if (lines.some(hasValue)) return html`<${Plot} ...${props} />`;
  const isBad = lines.some((line) => line.bad?.length);
  return html`<div class="chart no-values" role="figure" aria-label=${label ?? "chart"} data-lines=${lines.length} data-points="0" style=${{ minHeight: `${height}px` }}>
    <p class=${isBad ? "bad" : "quiet"}>${isBad ? "Every value is NaN or infinite." : "No values yet."}</p></div>`;
}

function Plot({ lines, marks = NO_MARKS, level = null, height = 220, logX = false, logY = false,
  xLabel = "env steps", syncKey, onMark, label, onPlot, onCursor }) {
  const box = useRef(null);
  const plot = useRef(null);
  const state = useRef({ marks, level });
  const zoomed = useRef(false);
  const drawn = useRef([]);  // the lines, marks and level that the plot has
  const [places, setPlaces] = useState([]);
  const [tip, setTip] = useState(null);
  state.current.marks = marks;
  state.current.level = level;
  state.current.onCursor = onCursor;
  const shape = JSON.stringify([lines.map((l) => [l.key, l.colour, l.width, l.faint, Boolean(l.lo), l.x.length <= 40]), logX, logY, theme.value, height]);

  useEffect(() => {
    const { data, series, bands } = layout(lines, { logX, logY });
    const width = Math.max(120, box.current.clientWidth);
    const yRange = (u, low, high) => {
      let [a, b] = [low, high];
      const at = state.current.level;
      if (at !== null && at !== undefined && a !== null && at > b && at - b < 3 * (b - a || Math.abs(b) || 1)) b = at;
      if (a === null || a === undefined) return [0, 1];
      if (logY) return uPlot.rangeLog(a, b, 10, false);
      return uPlot.rangeNum(a, b, 0.06, true);
    };
    /** All of a clock begins at 0; a part that was chosen by dragging is shown as it is. */
    const xRange = (u, low, high) => {
      if (low === null || low === undefined) return [0, 1];
      const xs = u.data[0];
      const start = low === xs[0] && high === xs.at(-1) ? Math.min(0, low) : low;
      return [start, high > start ? high : start + 1];
    };
    let isOver = false;
    const u = new uPlot({
      width, height, legend: { show: false }, padding: [10, 18, 0, 0],
      cursor: { dataIdx: sampleIndex, sync: syncKey ? { key: syncKey, setSeries: false, scales: ["x", null] } : undefined, points: { one: true, size: 7 }, drag: { x: true, y: false }, y: false },
      scales: { x: { time: false, distr: logX ? 3 : 1, ...(logX ? {} : { range: xRange }) }, y: { distr: logY ? 3 : 1, range: yRange } },
      axes: [axis({ values: ticks, space: 64, size: 26 }),
        axis({ values: ticks, space: 32, size: (u2, texts) => 14 + 6.6 * Math.max(3, ...(texts ?? []).map((t) => (t ?? "").length)) })],
      series, bands,
      hooks: {
        draw: [drawHook(state.current), (u2) => { const next = markPlaces(u2, state.current.marks); setPlaces((old) => (JSON.stringify(old) === JSON.stringify(next) ? old : next)); }],
        setSelect: [(u2) => { zoomed.current = u2.select.width > 0; }],
        setCursor: [(u2) => {
          const found = underCursor(u2);
          setTip(isOver ? tooltip(u2, found) : null);  // the box stands on one of several linked charts
          state.current.onCursor?.(found);
        }],
      },
    }, data, box.current);
    u.over.addEventListener("mouseenter", () => { isOver = true; });
    u.over.addEventListener("mouseleave", () => { isOver = false; setTip(null); });
    u.over.addEventListener("dblclick", () => { zoomed.current = false; });
    plot.current = u;
    drawn.current = [lines, marks, level];
    onPlot?.(u);
    const observer = new ResizeObserver(() => {
      const next = Math.max(120, box.current?.clientWidth ?? 0);
      if (next !== u.width) u.setSize({ width: next, height });
    });
    observer.observe(box.current);
    return () => { observer.disconnect(); u.destroy(); plot.current = null; };
  }, [shape]);

  useEffect(() => {
    const u = plot.current;
    if (!u || [lines, marks, level].every((one, i) => one === drawn.current[i])) return;
    const { data, series } = layout(lines, { logX, logY });
    series.forEach((one, i) => { if (u.series[i] && one.line) Object.assign(u.series[i], { line: one.line, samples: one.samples, label: one.label }); });
    u.setData(data, !zoomed.current);
    drawn.current = [lines, marks, level];
    if (zoomed.current) u.redraw(false, true);
  }, [lines, marks, level]);

  const points = lines.reduce((sum, line) => sum + line.x.length, 0);
  return html`<div class="chart" ref=${box} role="figure" aria-label=${label ?? "chart"} data-lines=${lines.length} data-points=${points} style=${{ minHeight: `${height}px` }}>
    ${places.filter((p) => p.text).map((p) => html`<button key=${p.i} class=${`mark ${p.kind}`} style=${{ left: `${p.left}px` }} title=${p.text} aria-label=${p.text} onClick=${() => onMark?.(p)}>${p.sign ?? "!"}</button>`)}
    ${tip && html`<div class="tip" style=${tip.style}><b>${short(tip.x)} ${xLabel}</b>${tip.rows.map((row) => html`<div key=${row.key}><i style=${{ background: colourVar(row.colour) }}></i><span title=${row.label}>${row.label}</span><small class="quiet">${row.n < row.of ? `${row.n} of ${row.of} still training` : ""}${row.isElsewhere ? ` at ${short(row.x)}` : ""}</small><b>${valueText(row.y)}</b></div>`)}${tip.more > 0 && html`<div class="quiet">and ${tip.more} more</div>`}${tip.ended && html`<p class="quiet">${tip.ended}</p>`}</div>`}
  </div>`;
}

/** The samples of a line that have a value; `n`: the runs behind each, if it stands for several. */
function samplesOf(x, y, n) {
  const known = [];
  y.forEach((v, i) => { if (v !== null && v !== undefined) known.push(i); });
  return { x: known.map((i) => x[i]), y: known.map((i) => y[i]), n: n && known.map((i) => n[i]) };
}

/** The place of the number nearest to `x` in a sorted list. */
function nearest(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - xs[low - 1] <= xs[low] - x ? low - 1 : low;
}

/** The sample of a line at x: {x, y}; {ended: x} behind its last one; null before its first one. */
function sampleAt(u, samples, x) {
  const n = samples.x.length;
  if (!n) return null;
  const at = u.valToPos(x, "x");
  if (at > u.valToPos(samples.x[n - 1], "x") + NEAR) return { ended: samples.x[n - 1] };
  if (at < u.valToPos(samples.x[0], "x") - NEAR) return null;
  const i = nearest(samples.x, x);
  return { x: samples.x[i], y: samples.y[i], n: samples.n?.[i] };
}

/** Where uPlot draws the dot of a line: on its nearest sample, nowhere beyond its ends. */
function sampleIndex(u, i, idx, x) {
  const { samples, line } = u.series[i];
  if (!samples) return idx;
  if (line.faint) return null;
  const found = sampleAt(u, samples, x);
  return found?.y === undefined ? null : nearest(u.data[0], found.x);
}

/** What is under the cursor, the highest value first: {x, rows, ended}; null without a cursor. */
function underCursor(u) {
  const { left } = u.cursor;
  if (left === undefined || left === null || left < 0 || !u.data[0].length) return null;
  const x = u.posToVal(left, "x");
  const rows = [], ended = [];
  for (const { line, samples, label, key } of u.series) {
    if (!line || line.faint) continue;
    const found = sampleAt(u, samples, x);
    if (found?.y !== undefined) rows.push({ key, label, colour: line.colour, of: line.of, ...found, off: Math.abs(u.valToPos(found.x, "x") - left) });
    else if (found && line.ends) ended.push({ label, x: found.ended });
  }
  if (!rows.length) return ended.length ? { x, rows, ended } : null;
  const head = rows.reduce((a, b) => (b.off < a.off ? b : a)).x;
  for (const row of rows) row.isElsewhere = Math.abs(u.valToPos(row.x, "x") - u.valToPos(head, "x")) > 1.5;
  rows.sort((a, b) => b.y - a.y);
  return { x: head, rows, ended };
}

function tooltip(u, found) {
  if (!found) return null;
  const { left } = u.cursor;
  const place = u.over.offsetLeft + left;
  const style = left < u.over.clientWidth / 2 ? { left: `${place + 14}px` } : { right: `${u.root.clientWidth - place + 14}px` };
  const { ended } = found;
  const gone = ended.length === 0 ? "" : ended.length < 3 ? ended.map((one) => `${one.label}: ended at ${short(one.x)}`).join("; ") : `${ended.length} ended before`;
  return { x: found.x, rows: found.rows.slice(0, MOST_ROWS), more: found.rows.length - MOST_ROWS, ended: gone, style };
}

/** The legend: names with their lines; a click hides a line. */
export function Legend({ items, hidden, onToggle }) {
  return html`<div class="legend">${items.map((item) => html`<button key=${item.key} class="plain" aria-pressed=${!hidden.has(item.key)} title=${item.title ?? item.label} onClick=${() => onToggle(item.key)}>
    <svg width="20" height="8" aria-hidden="true"><line x1="0" y1="4" x2="20" y2="4" stroke=${colourVar(item.colour)} stroke-width="3" stroke-dasharray=${dash(item.colour)?.join(" ") ?? ""} /></svg><span>${item.label}</span></button>`)}</div>`;
}
