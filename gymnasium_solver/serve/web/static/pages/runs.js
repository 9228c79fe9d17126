// All runs: filter, order, groups of seeds, what to do with the selected ones.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { apiUrl, canWrite, get, post } from "../lib/api.js";
import { count } from "../lib/format.js";
import { kept } from "../lib/kept.js";
import { attempt, throttled, toast, useKeys } from "../lib/parts.js";
import { go, href, setQuery } from "../lib/router.js";
import { followRuns, listError, loaded, refresh, runs } from "../lib/runs-store.js";
import { flip, isSelected, selectOnly, selectedIds } from "../lib/selection.js";
import { startAndOpen } from "../lib/starting.js";
import { Archived } from "./runs-archived.js";
import { BUILT_IN, worthShowing } from "./runs-columns.js";
import { Columns, Tags, Views } from "./runs-dialogs.js";
import { Quick, Search } from "./runs-filter.js";
import { Table, openRun } from "./runs-table.js";

const MOST_COMPARED = 200; // as many as the page that compares draws at once
const isFolded = kept("fold-seeds", false);

export default function Runs({ query }) {
  const q = query.get("q") ?? "";
  const sort = query.get("sort") ?? "";
  const given = query.get("cols")?.split(",").filter(Boolean);
  const extra = (given ?? []).filter((c) => !(c in BUILT_IN));
  const [active, setActive] = useState(-1);
  const [open, setOpen] = useState(() => new Set());
  const [dialog, setDialog] = useState(null);
  const search = useRef(null);
  useEffect(() => followRuns(), []);
  const found = useSelected(q, sort, extra, isFolded.value);
  const shown = found.rows;
  const rows = useMemo(() => unfolded(found, isFolded.value, open), [found, isFolded.value, open]);
  const columns = given ?? worthShowing(shown, isFolded.value);
  const unfold = (key) => { const next = new Set(open); if (!next.delete(key)) next.add(key); setOpen(next); };

  const chosen = shown.filter((run) => isSelected(run.id));
  const compare = () => {
    if (!chosen.length) return;
    if (chosen.length > MOST_COMPARED) toast(`Comparing the first ${MOST_COMPARED} of ${count(chosen.length)} selected runs; narrow the filter to choose others.`);
    go("compare", { runs: chosen.slice(0, MOST_COMPARED).map((run) => run.id) });
  };
  const move = (step) => setActive(Math.max(0, Math.min(rows.length - 1, active + step)));
  const at = rows[active];
  useKeys({
    "/": () => search.current.focus(), j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1),
    Enter: (event) => { if (event.target.closest?.("a, button")) event.target.click(); else if (at?.rows) unfold(at.key); else if (at) openRun(at); },
    x: () => { const ids = at ? (at.rows ?? [at]).map((run) => run.id) : []; flip(ids, !ids.every(isSelected)); }, c: compare,
    a: () => flip(shown.map((run) => run.id), true), Escape: () => selectOnly([]), f: () => { isFolded.value = !isFolded.value; },
  }, [["/", "search and filter"], ["j k", "next, previous run"], ["Enter", "open the run, unfold the group"], ["x", "select it"], ["a", "select all that are shown"], ["Esc", "select none"], ["f", "fold seeds into groups"], ["c", "compare the selected runs"]]);

  const total = runs.value.size;
  return html`<div class="runs-page">
    <h1 class="visually-hidden">Runs</h1>
    <div class="row toolbar">
      <${Search} q=${q} error=${found.error} inputRef=${search} />
      <${Quick} q=${q} />
      <span class="grow"></span>
      <span class="quiet" role="status" data-shown=${shown.length} data-total=${total}>${!loaded.value ? "Loading…" : shown.length === total ? `${count(total)} runs` : `${count(shown.length)} of ${count(total)} runs`}</span>
      <button aria-pressed=${isFolded.value} title="Runs that differ only by the seed as one row (f)" onClick=${() => { isFolded.value = !isFolded.value; }}>Group seeds</button>
      <button onClick=${() => setDialog("views")}>Views</button>
      <button onClick=${() => setDialog("columns")}>Columns</button>
      <button onClick=${() => setDialog("archived")}>Archived</button>
    </div>
    ${selectedIds().size > 0 && html`<${Bulk} chosen=${chosen} hidden=${selectedIds().size - chosen.length} compare=${compare} openTags=${() => setDialog("tags")} />`}
    ${listError.value && html`<p class="bad" role="alert">${listError.value}</p>`}
    ${loaded.value && total === 0 ? html`<${Nothing} />`
      : loaded.value && shown.length === 0 && !found.error && !found.isLoading ? html`<section class="empty"><h2>No run matches</h2><p>Nothing here has <code>${q}</code>.</p><button onClick=${() => setQuery({ q: "" })}>Clear the filter</button></section>`
      : html`<${Table} rows=${rows} shown=${shown} columns=${columns} values=${found.values} sort=${sort} active=${active} setActive=${setActive} unfold=${unfold} />`}
    ${dialog === "columns" && html`<${Columns} columns=${columns} onClose=${() => setDialog(null)} />`}
    ${dialog === "views" && html`<${Views} onClose=${() => setDialog(null)} />`}
    ${dialog === "archived" && html`<${Archived} onClose=${() => setDialog(null)} />`}
    ${dialog === "tags" && html`<${Tags} chosen=${chosen} onClose=${() => setDialog(null)} />`}
  </div>`;
}

/** The runs that the filter accepts, in order. The server filters: it knows the configs. */
function useSelected(q, sort, extra, fold) {
  const [answer, setAnswer] = useState({ order: null, columns: {}, groups: null, error: "" });
  const needed = q.trim() !== "" || sort !== "" || extra.length > 0 || fold;
  const key = JSON.stringify([q, sort, extra, fold]);
  const load = useMemo(() => throttled(async (text, by, names, folded, keyNow) => {
    try {
      const got = await get("select", { q: text, sort: by, columns: names, fold: folded ? 1 : "" });
      setAnswer({ ...got, error: "", key: keyNow });
    } catch (error) {
      setAnswer((old) => ({ ...old, error: error.message, key: keyNow }));
    }
  }, 250), []);
  useEffect(() => { if (needed && loaded.value) load(q, sort, extra, fold, key); }, [key, needed, runs.value, loaded.value]);
  return useMemo(() => {
    const every = runs.value;
    if (!needed || !answer.order) {
      const rows = [...every.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : b.n - a.n));
      return { rows: needed && !answer.error ? [] : rows, values: {}, groups: null, isLoading: needed && !answer.error, error: needed ? answer.error : "" };
    }
    const rows = [];
    const values = Object.fromEntries(Object.keys(answer.columns).map((c) => [c, new Map()]));
    answer.order.forEach((n, i) => {
      const run = every.get(n);
      if (!run) return;
      rows.push(run);
      for (const [c, list] of Object.entries(answer.columns)) values[c].set(n, list[i]);
    });
    const groups = answer.groups?.map((g) => ({ ...g, rows: g.runs.map((n) => every.get(n)).filter(Boolean) })).filter((g) => g.rows.length);
    return { rows, values, groups, error: answer.error };
  }, [runs.value, answer, needed]);
}

/** The rows of the table: runs, or groups of seeds with the runs of those that are open. */
function unfolded(found, fold, open) {
  if (!fold || !found.groups) return found.rows;
  return found.groups.flatMap((group) => {
    if (group.rows.length === 1) return group.rows;
    const key = group.rows.map((run) => run.id).sort()[0];
    const isOpen = open.has(key);
    return [{ ...group, key, isOpen }, ...(isOpen ? group.rows.map((run) => ({ ...run, isSeed: true })) : [])];
  });
}

function Bulk({ chosen, hidden, compare, openTags }) {
  const ids = chosen.map((run) => run.id);
  const archive = () => {
    if (confirm(`Move ${ids.length} ${ids.length === 1 ? "run" : "runs"} to the archive? The button “Archived” brings them back.`)) {
      attempt(() => post("runs/archive", { runs: ids }), `archived ${ids.length}`).then(() => { flip(ids, false); refresh(); });
    }
  };
  return html`<div class="row bulk panel" role="group" aria-label="Selected runs"><b>${count(chosen.length)} selected</b>${hidden > 0 && html`<span class="quiet">and ${count(hidden)} that the filter hides</span>`}
    <button class="primary" disabled=${!ids.length} onClick=${compare}>Compare</button>
    <a class="button" href=${apiUrl("report.html", { runs: ids })} download="report.html">Report</a>
    ${canWrite() && html`<button disabled=${!ids.length} onClick=${openTags}>Tag…</button><button disabled=${!ids.length} onClick=${archive}>Archive…</button>`}
    <button class="plain" onClick=${() => selectOnly([])}>Clear</button></div>`;
}

function Nothing() {
  const [isStarting, setStarting] = useState(false);
  const start = async () => {
    setStarting(true);
    if (!(await startAndOpen({ config: "CartPole-v1:ppo" }))) setStarting(false);
  };
  return html`<section class="empty first-visit"><h2>No runs yet</h2>
    ${canWrite() && html`<p>Train an agent that balances a pole, and watch it learn. It takes about ten seconds.</p>
      <p class="row"><button class="primary" disabled=${isStarting} onClick=${start}>${isStarting ? "Starting…" : "Train CartPole"}</button><a class="button" href=${href("start")}>Choose another environment</a></p>`}
    <p class="quiet">In a terminal, the same is</p><pre class="panel">gsolve train CartPole-v1:ppo</pre></section>`;
}
