// All runs: a table of thousands of rows of which only the visible ones exist.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { apiUrl, canWrite, get, post } from "../lib/api.js";
import { ago, configText, count, seconds, short, value } from "../lib/format.js";
import { Dialog, Status, attempt, throttled, useKeys } from "../lib/parts.js";
import { go, href, place, setQuery } from "../lib/router.js";
import { followRuns, listError, loaded, name, refresh, runs, shortId } from "../lib/runs-store.js";
import { Archived } from "./runs-archived.js";

const ROW = 30;
const IS_PHONE = matchMedia("(max-width: 720px)").matches;
const BUILT_IN = {
  status: { title: "status", width: 104, sort: "status", cell: (run) => html`<${Status} run=${run} />` },
  run: { title: "run", width: IS_PHONE ? 130 : 300, grow: true, sort: "env", cell: (run) => html`<a href=${href(`runs/${encodeURIComponent(run.id)}`)} title=${run.id}>${run.status === "broken" ? run.id : name(run)}</a> <span class="quiet mono">${shortId(run.id)}</span>` },
  seed: { title: "seed", width: 56, sort: "seed", num: true, cell: (run) => run.seed ?? "–" },
  test: { title: "test", width: IS_PHONE ? 72 : 128, sort: "test", num: true, hint: "Mean return of the held-out test ± standard error", cell: (run) => (run.test === null ? "–" : html`<b>${value(run.test)}</b>${run.stderr !== null && html` <span class="quiet">± ${Number(run.stderr.toPrecision(2))}</span>`}`) },
  threshold: { title: "solved at", width: 76, sort: "threshold", num: true, cell: (run) => value(run.threshold) },
  best: { title: "best val", width: 84, sort: "val", num: true, hint: "Highest validation; it chooses the checkpoint and is too high to judge it", cell: (run) => value(run.best) },
  steps: { title: "env steps", width: 128, sort: "steps", num: true, cell: (run) => html`<${Progress} run=${run} />` },
  time: { title: "time", width: 96, sort: "time", num: true, cell: (run) => seconds(run.wall_s) },
  fps: { title: "steps/s", width: 76, sort: "fps", num: true, cell: (run) => (run.wall_s ? short(run.env_steps / run.wall_s) : "–") },
  created: { title: "started", width: 100, sort: "created", cell: (run) => html`<span title=${run.created_at}>${ago(run.created_at)}</span>` },
  tags: { title: "tags", width: 140, sort: "tag", cell: (run) => run.tags.map((tag) => html`<span key=${tag} class="tag">${tag}</span> `) },
  note: { title: "note", width: 180, sort: "note", cell: (run) => html`<span class="quiet" title=${run.note}>${run.note}</span>` },
};
const DEFAULT = IS_PHONE ? ["run", "status", "test", "seed", "steps"] : ["status", "run", "seed", "test", "best", "steps", "time", "created", "tags"];
const QUICK = [["running", "running", "status=running"], ["solved", "solved", "solved"], ["failed", "failed", "status=failed"], ["killed", "killed", "status=killed"]];

function Progress({ run }) {
  const share = run.max_env_steps ? Math.min(1, run.env_steps / run.max_env_steps) : null;
  return html`<span class="progress" title=${`${count(run.env_steps)} of ${count(run.max_env_steps)}`}>${short(run.env_steps)}${share !== null && run.status === "running" && html`<i style=${{ width: `${100 * share}%` }}></i>`}</span>`;
}

export default function Runs({ query }) {
  const q = query.get("q") ?? "";
  const sort = query.get("sort") ?? "";
  const columns = query.get("cols")?.split(",").filter(Boolean) ?? DEFAULT;
  const extra = columns.filter((c) => !(c in BUILT_IN));
  const [selection, setSelection] = useState(() => new Set());
  const [active, setActive] = useState(-1);
  const [dialog, setDialog] = useState(null);
  const search = useRef(null);
  useEffect(() => followRuns(), []);
  const found = useSelected(q, sort, extra);
  const shown = found.rows;

  const toggle = (n, on) => {
    const next = new Set(selection);
    if (on ?? !next.has(n)) next.add(n); else next.delete(n);
    setSelection(next);
  };
  const chosen = shown.filter((run) => selection.has(run.n));
  const compare = () => { if (chosen.length) go("compare", { runs: chosen.map((run) => run.id) }); };
  const move = (step) => setActive(Math.max(0, Math.min(shown.length - 1, active + step)));
  useKeys({
    "/": () => search.current.focus(), j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    Enter: (event) => { if (event.target.closest?.("a, button")) event.target.click(); else if (shown[active]) go(`runs/${encodeURIComponent(shown[active].id)}`); },
    x: () => { if (shown[active]) toggle(shown[active].n); }, c: compare,
    a: () => setSelection(new Set(shown.map((run) => run.n))), Escape: () => setSelection(new Set()),
  }, [["/", "search and filter"], ["j k", "next, previous run"], ["Enter", "open the run"], ["x", "select it"], ["a", "select all that are shown"], ["Esc", "select none"], ["c", "compare the selected runs"]]);

  return html`<div class="runs-page">
    <h1 class="visually-hidden">Runs</h1>
    <div class="row toolbar">
      <${Search} q=${q} error=${found.error} inputRef=${search} />
      <${Quick} q=${q} />
      <span class="grow"></span>
      <span class="quiet" role="status" data-shown=${shown.length} data-total=${runs.value.size}>${loaded.value ? (shown.length === runs.value.size ? `${count(runs.value.size)} runs` : `${count(shown.length)} of ${count(runs.value.size)} runs`) : "Loading…"}</span>
      <button onClick=${() => setDialog("columns")}>Columns</button>
      <button onClick=${() => setDialog("archived")}>Archived</button>
    </div>
    ${selection.size > 0 && html`<${Bulk} chosen=${chosen} compare=${compare} clear=${() => setSelection(new Set())} openTags=${() => setDialog("tags")} />`}
    ${listError.value && html`<p class="bad" role="alert">${listError.value}</p>`}
    ${loaded.value && runs.value.size === 0 ? html`<${Nothing} />`
      : loaded.value && shown.length === 0 && !found.error ? html`<section class="empty"><h2>No run matches</h2><p>Nothing here has <code>${q}</code>.</p><button onClick=${() => setQuery({ q: "" })}>Clear the filter</button></section>`
      : html`<${Table} rows=${shown} columns=${columns} values=${found.values} sort=${sort} selection=${selection} toggle=${toggle} setAll=${(on) => setSelection(on ? new Set(shown.map((r) => r.n)) : new Set())} active=${active} setActive=${setActive} />`}
    ${dialog === "columns" && html`<${Columns} columns=${columns} onClose=${() => setDialog(null)} />`}
    ${dialog === "archived" && html`<${Archived} onClose=${() => setDialog(null)} />`}
    ${dialog === "tags" && html`<${Tags} chosen=${chosen} onClose=${() => setDialog(null)} />`}
  </div>`;
}

/** The runs that the filter accepts, in order. The server filters: it knows the configs. */
function useSelected(q, sort, extra) {
  const [answer, setAnswer] = useState({ order: null, columns: {}, error: "" });
  const needed = q.trim() !== "" || sort !== "" || extra.length > 0;
  const key = JSON.stringify([q, sort, extra]);
  const load = useMemo(() => throttled(async (text, by, names, keyNow) => {
    try {
      const got = await get("select", { q: text, sort: by, columns: names });
      setAnswer({ ...got, error: "", key: keyNow });
    } catch (error) {
      setAnswer((old) => ({ ...old, error: error.message, key: keyNow }));
    }
  }, 250), []);
  useEffect(() => { if (needed && loaded.value) load(q, sort, extra, key); }, [key, needed, runs.value, loaded.value]);
  return useMemo(() => {
    const every = runs.value;
    if (!needed || !answer.order) {
      const rows = [...every.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : b.n - a.n));
      return { rows: needed && !answer.error ? [] : rows, values: {}, error: needed ? answer.error : "" };
    }
    const rows = [];
    const values = Object.fromEntries(Object.keys(answer.columns).map((c) => [c, new Map()]));
    answer.order.forEach((n, i) => {
      const run = every.get(n);
      if (!run) return;
      rows.push(run);
      for (const [c, list] of Object.entries(answer.columns)) values[c].set(n, list[i]);
    });
    return { rows, values, error: answer.error };
  }, [runs.value, answer, needed]);
}

function Search({ q, error, inputRef }) {
  const [text, setText] = useState(q);
  const apply = useMemo(() => throttled((t) => setQuery({ q: t }), 200), []);
  useEffect(() => { if (document.activeElement !== inputRef.current) setText(q); }, [q]);
  return html`<div class="search"><input ref=${inputRef} type="search" value=${text} aria-label="Filter the runs" aria-invalid=${error ? "true" : "false"} aria-describedby="filter-error"
      placeholder="Filter: CartPole solved test>400 policy_lr<0.001 tag=paper" spellcheck=${false}
      onInput=${(event) => { setText(event.target.value); apply(event.target.value); }}
      onKeyDown=${(event) => { if (event.key === "Escape") event.target.blur(); }} />
    ${error && html`<p id="filter-error" class="bad" role="alert">${error}</p>`}</div>`;
}

function Quick({ q }) {
  const words = q.split(/\s+/).filter(Boolean);
  const flip = (word) => setQuery({ q: (words.includes(word) ? words.filter((w) => w !== word) : [...words, word]).join(" ") });
  const counts = {};
  for (const run of runs.value.values()) {
    counts[run.status] = (counts[run.status] ?? 0) + 1;
    if (run.solved) counts.solved = (counts.solved ?? 0) + 1;
  }
  return html`<div class="row" role="group" aria-label="Quick filters">${QUICK.filter(([key, , word]) => counts[key] || words.includes(word)).map(([key, text, word]) => html`<button key=${key} class="small" aria-pressed=${words.includes(word)} onClick=${() => flip(word)}>${text} <span class="quiet">${counts[key] ?? 0}</span></button>`)}</div>`;
}

function Table({ rows, columns, values, sort, selection, toggle, setAll, active, setActive }) {
  const box = useRef(null);
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
  const first = Math.max(0, Math.floor(view.top / ROW) - 8);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW) + 8);
  const specs = columns.map((c) => BUILT_IN[c] ?? { title: c, width: 110, sort: c, num: typeof firstValue(values[c]) === "number", cell: (run) => configText(values[c]?.get(run.n)) });
  const width = 36 + specs.reduce((sum, s) => sum + s.width, 0);
  const all = rows.length > 0 && rows.every((run) => selection.has(run.n));
  return html`<div class="panel table-box" ref=${box} tabindex="0" role="region" aria-label="Table of runs">
    <table class="runs" aria-rowcount=${rows.length + 1} style=${{ minWidth: `${width}px` }}>
      <colgroup><col style=${{ width: "36px" }} />${specs.map((s, i) => html`<col key=${i} style=${s.grow ? {} : { width: `${s.width}px` }} />`)}</colgroup>
      <thead><tr><th scope="col"><input type="checkbox" aria-label="Select all runs that are shown" checked=${all} onChange=${() => setAll(!all)} /></th>
        ${specs.map((s, i) => html`<th key=${columns[i]} scope="col" class=${s.num ? "num" : ""} aria-sort=${sort === s.sort ? "descending" : sort === `-${s.sort}` ? "ascending" : "none"}>
          <button class="plain" title=${s.hint ?? `Sort by ${s.title}`} onClick=${() => setQuery({ sort: sort === s.sort ? `-${s.sort}` : sort === `-${s.sort}` ? "" : s.sort })}>${s.title}${sort === s.sort ? " ↓" : sort === `-${s.sort}` ? " ↑" : ""}</button></th>`)}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr key="above" aria-hidden="true"><td colspan=${specs.length + 1} style=${{ height: `${first * ROW}px`, padding: 0 }}></td></tr>`}
        ${rows.slice(first, last).map((run, i) => html`<tr key=${run.n} aria-rowindex=${first + i + 2} class=${`${selection.has(run.n) ? "chosen" : ""} ${first + i === active ? "active" : ""}`} onClick=${(event) => { if (!event.target.closest("a, button, input")) setActive(first + i); }}
            onDblClick=${() => go(`runs/${encodeURIComponent(run.id)}`)}>
          <td><input type="checkbox" aria-label=${`Select ${run.id}`} checked=${selection.has(run.n)} onChange=${() => toggle(run.n)} /></td>
          ${specs.map((s, j) => html`<td key=${columns[j]} class=${s.num ? "num" : ""}>${s.cell(run)}</td>`)}</tr>`)}
        ${last < rows.length && html`<tr key="below" aria-hidden="true"><td colspan=${specs.length + 1} style=${{ height: `${(rows.length - last) * ROW}px`, padding: 0 }}></td></tr>`}
      </tbody></table></div>`;
}

const firstValue = (map) => { for (const v of map?.values() ?? []) if (v !== null) return v; return null; };

function Bulk({ chosen, compare, clear, openTags }) {
  const ids = chosen.map((run) => run.id);
  const archive = () => {
    if (confirm(`Move ${ids.length} ${ids.length === 1 ? "run" : "runs"} to the archive? The button “Archived” brings them back.`)) {
      attempt(() => post("runs/archive", { runs: ids }), `archived ${ids.length}`).then(() => { clear(); refresh(); });
    }
  };
  return html`<div class="row bulk panel" role="group" aria-label="Selected runs"><b>${chosen.length} selected</b>
    <button class="primary" onClick=${compare}>Compare</button>
    <a class="button" href=${apiUrl("report.html", { runs: ids })} download="report.html">Report</a>
    ${canWrite() && html`<button onClick=${openTags}>Tag…</button><button onClick=${archive}>Archive…</button>`}
    <button class="plain" onClick=${clear}>Clear</button></div>`;
}

function Tags({ chosen, onClose }) {
  const ids = chosen.map((run) => run.id);
  const existing = [...new Set(chosen.flatMap((run) => run.tags))];
  const change = (body, text) => attempt(() => post("runs/tags", { runs: ids, ...body }), text).then(refresh);
  const add = (event) => {
    event.preventDefault();
    const tags = new FormData(event.target).get("tags").split(/[\s,]+/).filter(Boolean);
    if (tags.length) change({ add: tags }, `tagged ${ids.length}`).then(onClose);
  };
  return html`<${Dialog} title=${`Tags of ${ids.length} ${ids.length === 1 ? "run" : "runs"}`} onClose=${onClose}>
    <form class="row" onSubmit=${add}><input name="tags" placeholder="paper baseline" aria-label="New tags" autofocus /><button class="primary">Add</button></form>
    ${existing.length > 0 && html`<div class="row"><span class="quiet">Remove</span>${existing.map((tag) => html`<button key=${tag} class="small" onClick=${() => change({ remove: [tag] }, `removed ${tag}`)}>${tag} ×</button>`)}</div>`}<//>`;
}

function Columns({ columns, onClose }) {
  const [fields, setFields] = useState([]);
  const [text, setText] = useState("");
  useEffect(() => { attempt(() => get("select", { fields: 1, q: "" })).then((got) => setFields(got?.fields ?? [])); }, []);
  const names = [...Object.keys(BUILT_IN), ...fields.filter((f) => !(f in BUILT_IN) && !["id", "env", "algo", "val", "tag"].includes(f))];
  const set = (next) => setQuery({ cols: next.join() === DEFAULT.join() ? "" : next.join(",") });
  const flip = (c) => set(columns.includes(c) ? columns.filter((x) => x !== c) : [...columns, c]);
  return html`<${Dialog} title="Columns" onClose=${onClose}>
    <div class="row"><input type="search" value=${text} placeholder="Search, also config fields" aria-label="Search the columns" onInput=${(e) => setText(e.target.value)} /><button onClick=${() => set(DEFAULT)}>Default</button></div>
    <div class="choices">${names.filter((n) => n.includes(text.trim())).map((n) => html`<label key=${n} class="field"><input type="checkbox" checked=${columns.includes(n)} onChange=${() => flip(n)} /><span class=${n in BUILT_IN ? "" : "mono"}>${BUILT_IN[n]?.title ?? n}</span></label>`)}</div><//>`;
}

const Nothing = () => html`<section class="empty"><h2>No runs yet</h2><p>Train something, for example</p><pre class="panel body">gsolve train CartPole-v1:ppo</pre>${canWrite() && html`<p>or <a href=${href("start")}>start a training here</a>.</p>`}</section>`;
