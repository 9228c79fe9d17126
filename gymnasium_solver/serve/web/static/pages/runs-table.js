// The table of thousands of runs, of which only the visible rows exist.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { useClock } from "../lib/repeated.js";
import { go, setQuery } from "../lib/router.js";
import { name } from "../lib/runs-store.js";
import { flip, isSelected } from "../lib/selection.js";
import { needSparklines } from "../lib/sparklines.js";
import { BUILT_IN, configColumn, differingFields } from "./runs-columns.js";

const ROW = 34;
const AROUND = 8; // rows beyond the visible ones

export const openRun = (run) => go(`runs/${encodeURIComponent(run.id)}`);

export function Table({ rows, shown, columns, values, sort, active, setActive, unfold }) {
  const box = useRef(null);
  const view = useView(box, active);
  const first = Math.max(0, Math.floor(view.top / ROW) - AROUND);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + AROUND);
  const visible = rows.slice(first, last);
  const clock = useClock(visible.some((row) => row.status === "running"));
  const differing = useMemo(() => differingFields(shown), [shown]);
  const context = { clock, differing };
  useEffect(() => { if (columns.includes("curve")) needSparklines(visible.flatMap((row) => row.rows ?? [row])); });
  const specs = columns.map((c) => BUILT_IN[c] ?? configColumn(c, values[c]));
  const widths = specs.map((s) => s.fits?.(shown) ?? s.width);
  const width = 36 + widths.reduce((sum, w) => sum + w, 0);
  const all = shown.length > 0 && shown.every((run) => isSelected(run.id));
  const space = (n, key) => n > 0 && html`<tr key=${key} aria-hidden="true"><td colspan=${specs.length + 1} style=${{ height: `${n * ROW}px`, padding: 0 }}></td></tr>`;
  return html`<div class="panel table-box" ref=${box} tabindex="0" role="region" aria-label="Table of runs">
    <table class="runs" aria-rowcount=${rows.length + 1} style=${{ minWidth: `${width}px` }}>
      <colgroup><col style=${{ width: "36px" }} />${specs.map((s, i) => html`<col key=${i} style=${s.grow ? {} : { width: `${widths[i]}px` }} />`)}</colgroup>
      <thead><tr><th scope="col"><input type="checkbox" aria-label="Select all runs that are shown" checked=${all} onChange=${() => flip(shown.map((run) => run.id), !all)} /></th>
        ${specs.map((s, i) => html`<${Head} key=${columns[i]} spec=${s} sort=${sort} />`)}</tr></thead>
      <tbody>${space(first, "above")}
        ${visible.map((row, i) => (row.rows ? html`<${GroupRow} key=${`g${row.key}`} group=${row} at=${first + i} active=${active} setActive=${setActive} unfold=${unfold} specs=${specs} columns=${columns} context=${context} />`
          : html`<${RunRow} key=${row.n} run=${row} at=${first + i} active=${active} setActive=${setActive} specs=${specs} columns=${columns} context=${context} />`))}
        ${space(rows.length - last, "below")}</tbody></table></div>`;
}

function Head({ spec, sort }) {
  const next = sort === spec.sort ? `-${spec.sort}` : sort === `-${spec.sort}` ? "" : spec.sort;
  if (!spec.sort) return html`<th scope="col" title=${spec.hint}><span class="head">${spec.title}</span></th>`;
  return html`<th scope="col" class=${spec.num ? "num" : ""} aria-sort=${sort === spec.sort ? "descending" : sort === `-${spec.sort}` ? "ascending" : "none"}>
    <button class="plain" title=${spec.hint ?? `Sort by ${spec.title}`} onClick=${() => setQuery({ sort: next })}>${spec.title}${sort === spec.sort ? " ↓" : sort === `-${spec.sort}` ? " ↑" : ""}</button></th>`;
}

const isControl = (event) => event.target.closest("a, button, input");
const classes = (isChosen, isActive, more = "") => `${isChosen ? "chosen" : ""} ${isActive ? "active" : ""} ${more}`;

function RunRow({ run, at, active, setActive, specs, columns, context }) {
  const isChosen = isSelected(run.id);
  return html`<tr aria-rowindex=${at + 2} class=${classes(isChosen, at === active, run.isSeed ? "seed-row" : "")} onClick=${(event) => { if (!isControl(event)) setActive(at); }} onDblClick=${(event) => { if (!isControl(event)) openRun(run); }}>
    <td><input type="checkbox" aria-label=${`Select ${run.id}`} checked=${isChosen} onChange=${() => flip([run.id], !isChosen)} /></td>
    ${specs.map((s, j) => html`<td key=${columns[j]} class=${`${s.num ? "num" : ""} c-${columns[j]}`}>${s.cell(run, context)}</td>`)}</tr>`;
}

function GroupRow({ group, at, active, setActive, unfold, specs, columns, context }) {
  const ids = group.rows.map((run) => run.id);
  const isChosen = ids.every(isSelected);
  const cell = (s, c) => (c === "run" ? html`<button class="unfold" aria-expanded=${group.isOpen} onClick=${() => unfold(group.key)}><i aria-hidden="true">${group.isOpen ? "▾" : "▸"}</i><b>${name(group.rows[0])}</b> <span class="quiet">${group.rows.length} runs</span></button>` : s.group?.(group, context));
  return html`<tr aria-rowindex=${at + 2} class=${classes(isChosen, at === active, "group-row")} onClick=${(event) => { if (!isControl(event)) setActive(at); }} onDblClick=${() => unfold(group.key)}>
    <td><input type="checkbox" aria-label=${`Select the ${ids.length} runs of ${name(group.rows[0])}`} checked=${isChosen} onChange=${() => flip(ids, !isChosen)} /></td>
    ${specs.map((s, j) => html`<td key=${columns[j]} class=${`${s.num ? "num" : ""} c-${columns[j]}`}>${cell(s, columns[j])}</td>`)}</tr>`;
}

/** Where the box is scrolled to; it follows the active row. */
function useView(box, active) {
  const [view, setView] = useState({ top: 0, height: 800 });
  useEffect(() => {
    const element = box.current;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight });
    measure();
    element.addEventListener("scroll", measure, { passive: true });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => { element.removeEventListener("scroll", measure); observer.disconnect(); };
  }, []);
  useEffect(() => {
    if (active < 0) return;
    const element = box.current;
    const top = active * ROW;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 2 * ROW > element.scrollTop + element.clientHeight) element.scrollTop = top + 2 * ROW - element.clientHeight;
  }, [active]);
  return view;
}
