// A scatter plot of runs: points [{key, label, x, y, colour}], drawn as SVG so that each is a link or has a title.
import { html } from "../vendor/ui.js";
import { tick, value } from "./format.js";
import { colourVar } from "./palette.js";

const W = 640, H = 300, LEFT = 56, BOTTOM = 34, TOP = 10, RIGHT = 16;

/** About n round numbers from low to high. */
function ticks(low, high, n = 5) {
  const step = 10 ** Math.floor(Math.log10((high - low) / n));
  const by = [1, 2, 5, 10].map((f) => f * step).find((s) => (high - low) / s <= n) ?? step;
  const found = [];
  for (let v = Math.ceil(low / by) * by; v <= high + by * 1e-9; v += by) found.push(Number(v.toPrecision(12)));
  return found;
}

function scale(values, from, to, isLog) {
  const known = isLog ? values.map(Math.log10) : values;
  let [low, high] = [Math.min(...known), Math.max(...known)];
  if (low === high) { low -= Math.abs(low) * 0.1 || 1; high += Math.abs(high) * 0.1 || 1; }
  const room = 0.06 * (high - low);
  [low, high] = [low - room, high + room];
  const at = (v) => from + ((to - from) * ((isLog ? Math.log10(v) : v) - low)) / (high - low);
  const marks = isLog ? logTicks(low, high) : ticks(low, high);
  return { at, marks };
}

function logTicks(low, high) {
  const whole = [];
  for (let power = Math.ceil(low); power <= high; power++) whole.push(10 ** power);
  return whole.length > 1 ? whole : [10 ** (low + 0.1 * (high - low)), 10 ** (high - 0.1 * (high - low))];
}

/** A range over more than a factor of 50 reads better on a logarithmic axis. */
const isWide = (values) => Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 50;

export function Scatter({ points, xLabel, yLabel, linkOf }) {
  if (!points.length) return html`<p class="quiet">No run has both values.</p>`;
  const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
  const x = scale(xs, LEFT, W - RIGHT, isWide(xs)), y = scale(ys, H - BOTTOM, TOP, false);
  const most = (marks) => Math.max(...marks.map(Math.abs));
  return html`<svg class="scatter" viewBox=${`0 0 ${W} ${H}`} role="group" aria-label=${`${yLabel} over ${xLabel}, ${points.length} runs`}>
    ${y.marks.map((v) => html`<g key=${`y${v}`}><line x1=${LEFT} x2=${W - RIGHT} y1=${y.at(v)} y2=${y.at(v)} class="grid" /><text x=${LEFT - 6} y=${y.at(v) + 4} text-anchor="end">${tick(v, most(y.marks))}</text></g>`)}
    ${x.marks.map((v) => html`<g key=${`x${v}`}><line x1=${x.at(v)} x2=${x.at(v)} y1=${TOP} y2=${H - BOTTOM} class="grid" /><text x=${x.at(v)} y=${H - BOTTOM + 15} text-anchor="middle">${tick(v, most(x.marks))}</text></g>`)}
    <text x=${(LEFT + W - RIGHT) / 2} y=${H - 3} text-anchor="middle">${xLabel}</text><text x="11" y=${(TOP + H - BOTTOM) / 2} text-anchor="middle" transform=${`rotate(-90 11 ${(TOP + H - BOTTOM) / 2})`}>${yLabel}</text>
    ${points.map((p) => html`<a key=${p.key} href=${linkOf(p.key)} aria-label=${`${p.label}: ${value(p.x)}, ${value(p.y)}`}><circle cx=${x.at(p.x)} cy=${y.at(p.y)} r="4.5" fill=${colourVar(p.colour)} fill-opacity=".75"><title>${`${p.label}\n${xLabel} ${value(p.x)}\n${yLabel} ${value(p.y)}`}</title></circle></a>`)}</svg>`;
}
