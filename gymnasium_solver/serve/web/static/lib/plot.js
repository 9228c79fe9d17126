// Points in a plane as SVG, drawn by the page itself: few enough for elements, so that each has its
// text and its link; and parallel coordinates.
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import { configText, fieldText } from "./format.js";
import { colourVar } from "./palette.js";

/** The width of an element, which follows the window. */
export function useWidth(initial = 640) {
  const ref = useRef(null);
  const [width, setWidth] = useState(initial);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(220, Math.floor(entry.contentRect.width))));
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return [ref, width];
}

const finite = (v) => typeof v === "number" && Number.isFinite(v);
const keyOf = (v) => configText(v);

/**
 * From values to [0, 1] and back to ticks. `kind`: linear, log, logit or choice; a log axis needs
 * values above 0, else it is linear.
 */
export function axis(values, kind) {
  if (kind === "choice" || !values.every(finite)) {
    const options = [...new Set(values.map(keyOf))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const place = (i) => (i + 0.5) / options.length;
    return { at: (v) => place(options.indexOf(keyOf(v))), ticks: options.map((text, i) => [text, place(i)]) };
  }
  const turn = kind === "log" && values.every((v) => v > 0) ? Math.log10 : kind === "logit" && values.every((v) => v > 0 && v < 1) ? logit : (v) => v;
  if (values.every((v) => v === values[0])) return { at: () => 0.5, ticks: values.length ? [[fieldText(values[0]), 0.5]] : [] };
  const turned = values.map(turn);
  const low = Math.min(...turned), high = Math.max(...turned), range = high - low;
  const at = (v) => (turn(v) - low) / range;
  const few = turn === Math.log10 ? decades(low, high) : turn === logit ? [Math.min(...values), Math.max(...values)] : nice(low, high);
  return { at, ticks: few.map((v) => [fieldText(v), at(v)]).filter(([, p]) => p >= -0.001 && p <= 1.001) };
}

const logit = (v) => Math.log10(v / (1 - v));

function decades(low, high) {
  const found = [];
  const steps = high - low > 2.2 ? [1] : [1, 2, 5];
  for (let e = Math.floor(low); e <= Math.ceil(high); e += 1) for (const s of steps) found.push(s * 10 ** e);
  return found;
}

function nice(low, high, n = 5) {
  const rough = (high - low) / n || 1;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * ([1, 2, 5].find((m) => m * size >= rough) ?? 10);
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) found.push(Number(v.toPrecision(12)));
  return found;
}

const LEFT = 56, RIGHT = 14, TOP = 10, BOTTOM = 34;

/**
 * `points`: [{x, y, kind, colour, label, onClick, isChosen}]; `steps`: a line of stairs [[x, y], ...];
 * `means`: [{x, y, low, high, label}], with intervals; `breakAt`: an x with a line through it.
 */
export function Scatter({ points, xKind = "linear", xLabel, yLabel, label, height = 260, steps = [], means = [], breakAt = null }) {
  const [ref, width] = useWidth();
  const known = points.filter((p) => p.x !== null && p.x !== undefined && finite(p.y));
  const x = axis([...known, ...means].map((p) => p.x), xKind);
  const y = axis([...known.map((p) => p.y), ...means.flatMap((m) => [m.y, m.low, m.high]).filter(finite)], "linear");
  const w = width - LEFT - RIGHT, h = height - TOP - BOTTOM;
  const px = (v) => LEFT + 8 + x.at(v) * (w - 16), py = (v) => TOP + 6 + (1 - y.at(v)) * (h - 12);
  return html`<div ref=${ref} class="plot">${known.length === 0 ? html`<p class="quiet">No values yet.</p>` : html`<svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${label} data-points=${known.length}>
    <g class="grid">${y.ticks.map(([t, p]) => html`<line key=${t} x1=${LEFT} x2=${width - RIGHT} y1=${TOP + 6 + (1 - p) * (h - 12)} y2=${TOP + 6 + (1 - p) * (h - 12)} />`)}${x.ticks.map(([t, p]) => html`<line key=${t} x1=${LEFT + 8 + p * (w - 16)} x2=${LEFT + 8 + p * (w - 16)} y1=${TOP} y2=${TOP + h} />`)}</g>
    <g class="ticks">${y.ticks.map(([t, p]) => html`<text key=${t} x=${LEFT - 6} y=${TOP + 10 + (1 - p) * (h - 12)} text-anchor="end">${t}</text>`)}${x.ticks.map(([t, p]) => html`<text key=${t} x=${LEFT + 8 + p * (w - 16)} y=${TOP + h + 15} text-anchor="middle">${clipped(t, w / x.ticks.length)}</text>`)}
      <text x=${LEFT + w / 2} y=${height - 3} text-anchor="middle">${xLabel}</text><text x=${12} y=${TOP + h / 2} text-anchor="middle" transform=${`rotate(-90 12 ${TOP + h / 2})`}>${yLabel}</text></g>
    ${breakAt !== null && html`<line class="break" x1=${px(breakAt)} x2=${px(breakAt)} y1=${TOP} y2=${TOP + h} />`}
    ${steps.length > 1 && html`<path class="best" d=${stairs(steps, px, py)} />`}
    ${known.map((p, i) => html`<circle key=${i} class=${`dot ${p.kind ?? ""} ${p.isChosen ? "picked" : ""}`} style=${p.colour === undefined ? null : { fill: colourVar(p.colour), fillOpacity: 0.75 }} cx=${px(p.x)} cy=${py(p.y)} r=${p.isChosen ? 6 : 4} onClick=${p.onClick}><title>${p.label}</title></circle>`)}
    ${means.map((m, i) => html`<g key=${i} class="mean">${finite(m.low) && html`<line x1=${px(m.x)} x2=${px(m.x)} y1=${py(m.low)} y2=${py(m.high)} />`}<line class="middle" x1=${px(m.x) - 9} x2=${px(m.x) + 9} y1=${py(m.y)} y2=${py(m.y)} /><title>${m.label}</title></g>`)}</svg>`}</div>`;
}

const clipped = (text, room) => { const most = Math.max(6, Math.floor(room / 6.2)); return text.length > most ? `${text.slice(0, most - 1)}…` : text; };
const stairs = (line, px, py) => line.map(([x, y], i) => (i ? `H${px(x).toFixed(1)}V${py(y).toFixed(1)}` : `M${px(x).toFixed(1)},${py(y).toFixed(1)}`)).join("");

/** One axis per field and one for the score; a line is a trial. `rows`: [{values, score, key, label}]. */
export function Parallel({ rows, fields, scoreName, sign, chosen, onChoose, label, height = 300 }) {
  const [ref, width] = useWidth(900);
  const names = [...fields.map(([name]) => name), scoreName];
  const scales = [...fields.map(([name, kind]) => axis(rows.filter((r) => r.values[name] !== undefined && r.values[name] !== null).map((r) => r.values[name]), kind)), axis(rows.map((r) => r.score), "linear")];
  const gap = (width - 120) / Math.max(1, names.length - 1);
  const px = (i) => 60 + i * gap, top = 34, bottom = 18, h = height - top - bottom;
  const py = (i, v) => top + (1 - scales[i].at(v)) * h;
  const order = [...rows].sort((a, b) => sign * (a.score - b.score)); // the best are drawn last
  const rank = new Map(order.map((r, i) => [r.key, order.length > 1 ? i / (order.length - 1) : 1]));
  const path = (r) => names.map((n, i) => { const v = i < fields.length ? r.values[n] : r.score; return v === undefined || v === null ? null : `${px(i).toFixed(1)},${py(i, v).toFixed(1)}`; }).filter(Boolean).join(" ");
  return html`<div ref=${ref} class="plot scroll">${rows.length < 2 ? html`<p class="quiet">From two trials on.</p>` : html`<svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${label} data-lines=${rows.length}>
    ${order.map((r) => html`<g key=${r.key} class=${`trial ${r.key === chosen ? "picked" : ""} r${Math.min(4, Math.floor(rank.get(r.key) * 5))}`} onClick=${() => onChoose(r.key)}><polyline class="hit" points=${path(r)} /><polyline class="line" points=${path(r)} /><title>${r.label}</title></g>`)}
    ${names.map((n, i) => html`<g key=${n} class="ticks"><line x1=${px(i)} x2=${px(i)} y1=${top} y2=${top + h} /><text class="name" x=${px(i)} y=${i % 2 && gap < 110 ? 26 : 14} text-anchor="middle">${n}</text>${thin(scales[i].ticks).map(([t, p]) => html`<text key=${t} x=${px(i) - 5} y=${top + (1 - p) * h + 4} text-anchor="end">${t.length > 10 ? `${t.slice(0, 9)}…` : t}</text>`)}</g>`)}</svg>`}</div>`;
}

const thin = (ticks) => (ticks.length > 9 ? ticks.filter((_, i) => i % Math.ceil(ticks.length / 8) === 0) : ticks);
