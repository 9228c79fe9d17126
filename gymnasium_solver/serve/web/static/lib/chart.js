// A line chart over uPlot: bands, raw lines behind smoothed ones, marks, a level, zoom, tooltip.
//
//   html`<${Chart} lines=${[{key, label, colour: 0, x, y, lo, hi, width, faint}]} marks=${[...]} />`
//
// The canvas has no DOM, so the counts are in data attributes and every chart offers its table.
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import uPlot from "../vendor/uplot.js";
import { short, tick, value as valueText } from "./format.js";
import { colour, colourVar, dash } from "./palette.js";
import { cssVar, theme } from "./theme.js";

const FONT = "11px system-ui, sans-serif";

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
    const table = [x, pick(line.y)];
    const first = series.length;
    series.push({
      label: line.label, stroke, width: line.width ?? 1.75, dash: line.dash ?? dash(line.colour) ?? undefined,
      alpha: line.faint ? 0.32 : 1, points: { show: x.length <= 40 && !line.faint, size: 5, fill: stroke },
      key: line.key, line,
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

/** Positions of the marks as buttons above the canvas: they can be reached with the keyboard. */
function markPlaces(u, marks) {
  const { left, width } = u.bbox;
  return marks.flatMap((mark, i) => {
    const x = u.valToPos(mark.x, "x", true);
    return x < left - 1 || x > left + width + 1 ? [] : [{ ...mark, i, left: x / devicePixelRatio }];
  });
}

const NO_MARKS = [];  // one list: a new one at every call would draw for ever

export function Chart({ lines, marks = NO_MARKS, level = null, height = 220, logX = false, logY = false,
  xLabel = "env steps", syncKey, onMark, label, onPlot }) {
  const box = useRef(null);
  const plot = useRef(null);
  const state = useRef({ marks, level });
  const zoomed = useRef(false);
  const [places, setPlaces] = useState([]);
  const [tip, setTip] = useState(null);
  state.current.marks = marks;
  state.current.level = level;
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
    const u = new uPlot({
      width, height, legend: { show: false }, padding: [10, 12, 0, 0],
      cursor: { sync: syncKey ? { key: syncKey, setSeries: false, scales: ["x", null] } : undefined, points: { one: true, size: 7 }, drag: { x: true, y: false }, y: false },
      scales: { x: { time: false, distr: logX ? 3 : 1 }, y: { distr: logY ? 3 : 1, range: yRange } },
      axes: [axis({ values: ticks, space: 64, size: 26 }),
        axis({ values: ticks, space: 32, size: (u2, texts) => 14 + 6.6 * Math.max(3, ...(texts ?? []).map((t) => (t ?? "").length)) })],
      series, bands,
      hooks: {
        draw: [drawHook(state.current), (u2) => { const next = markPlaces(u2, state.current.marks); setPlaces((old) => (JSON.stringify(old) === JSON.stringify(next) ? old : next)); }],
        setSelect: [(u2) => { zoomed.current = u2.select.width > 0; }],
        setCursor: [(u2) => setTip(tooltip(u2))],
      },
    }, data, box.current);
    u.over.addEventListener("dblclick", () => { zoomed.current = false; });
    plot.current = u;
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
    if (!u) return;
    const { data } = layout(lines, { logX, logY });
    u.setData(data, !zoomed.current);
    if (zoomed.current) u.redraw(false, true);
  }, [lines, marks, level]);

  const points = lines.reduce((sum, line) => sum + line.x.length, 0);
  return html`<div class="chart" ref=${box} role="figure" aria-label=${label ?? "chart"} data-lines=${lines.length} data-points=${points} style=${{ minHeight: `${height}px` }}>
    ${places.filter((p) => p.text).map((p) => html`<button key=${p.i} class=${`mark ${p.kind}`} style=${{ left: `${p.left}px` }} title=${p.text} aria-label=${p.text} onClick=${() => onMark?.(p)}>${p.sign ?? "!"}</button>`)}
    ${tip && html`<div class="tip" style=${tip.style}><b>${short(tip.x)} ${xLabel}</b>${tip.rows.map((row) => html`<div key=${row.key}><i style=${{ background: colourVar(row.colour) }}></i><span>${row.label}</span><b>${valueText(row.y)}</b></div>`)}${tip.more > 0 && html`<div class="quiet">and ${tip.more} more</div>`}</div>`}
  </div>`;
}

/** What is under the cursor, the highest value first. */
function tooltip(u) {
  const { left, idx } = u.cursor;
  if (left === undefined || left === null || left < 0 || idx === null || idx === undefined) return null;
  const x = u.posToVal(left, "x");
  const rows = [];
  u.series.forEach((series, i) => {
    if (i === 0 || series.isEdge || !series.line || series.line.faint) return;
    const y = nearest(u.data[0], u.data[i], idx);
    if (y !== null) rows.push({ key: series.key, label: series.label, colour: series.line.colour, y });
  });
  rows.sort((a, b) => b.y - a.y);
  const onRight = left < u.over.clientWidth / 2;
  const place = u.over.offsetLeft + left;
  const style = onRight ? { left: `${place + 14}px` } : { right: `${u.root.clientWidth - place + 14}px` };
  return { x, rows: rows.slice(0, 12), more: rows.length - 12, style };
}

function nearest(xs, ys, idx) {
  for (let d = 0; d < xs.length; d++) {
    const a = ys[idx - d], b = ys[idx + d];
    if (a !== null && a !== undefined) return a;
    if (b !== null && b !== undefined) return b;
    if (idx - d < 0 && idx + d >= xs.length) break;
  }
  return null;
}

/** The legend: names with their lines; a click hides a line. */
export function Legend({ items, hidden, onToggle }) {
  return html`<div class="legend">${items.map((item) => html`<button key=${item.key} class="plain" aria-pressed=${!hidden.has(item.key)} title=${item.title ?? item.label} onClick=${() => onToggle(item.key)}>
    <svg width="20" height="8" aria-hidden="true"><line x1="0" y1="4" x2="20" y2="4" stroke=${colourVar(item.colour)} stroke-width="3" stroke-dasharray=${dash(item.colour)?.join(" ") ?? ""} /></svg>${item.label}</button>`)}</div>`;
}
