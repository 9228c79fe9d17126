// The filter of the runs: suggestions of fields and values while typing, quick filters.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { get } from "../lib/api.js";
import { throttled } from "../lib/parts.js";
import { setQuery } from "../lib/router.js";
import { runs } from "../lib/runs-store.js";

const QUICK = [["running", "running", "status=running"], ["solved", "solved", "solved"], ["failed", "failed", "status=failed"], ["killed", "killed", "status=killed"]];
const CONDITION = /^([A-Za-z_][\w.]*)(>=|<=|!=|=|>|<)(.*)$/s;
const MOST = 8;

let fieldNames = null;
const valuesOf = new Map();

/** What may stand at the end of the text: [[what is put there, what is said about it], ...]. */
async function suggestions(word) {
  const found = CONDITION.exec(word);
  if (!found) {
    fieldNames ??= (await get("select", { fields: 1, q: "seed<0" })).fields;
    const wanted = word.toLowerCase();
    const rank = (n) => (n.toLowerCase().startsWith(wanted) ? 0 : 1);
    const fields = fieldNames.filter((n) => n.toLowerCase().includes(wanted)).sort((a, b) => rank(a) - rank(b));
    const envs = [...new Set([...runs.value.values()].map((run) => run.env_id))].filter((id) => id.toLowerCase().includes(wanted) && id.toLowerCase() !== wanted);
    return [...envs.slice(0, 3).map((id) => [id, "environment"]), ...fields.map((n) => [`${n}=`, ""])];
  }
  const [, field, sign, start] = found;
  if (!valuesOf.has(field)) {
    try { valuesOf.set(field, (await get("values", { field })).values); } catch { return []; }
    setTimeout(() => valuesOf.delete(field), 30_000);
  }
  return valuesOf.get(field).filter(([text]) => text.toLowerCase().includes(start.toLowerCase()) && text !== start)
    .map(([text, n]) => [/[\s"']/.test(text) ? `"${field}${sign}${text.replaceAll('"', '\\"')}"` : `${field}${sign}${text}`, `${n} ${n === 1 ? "run" : "runs"}`]);
}

export function Search({ q, error, inputRef }) {
  const [text, setText] = useState(q);
  const [options, setOptions] = useState([]);
  const [at, setAt] = useState(-1);
  const [isOpen, setOpen] = useState(false);
  const newest = useRef(0);
  const apply = useMemo(() => throttled((t) => setQuery({ q: t }), 200), []);
  useEffect(() => { if (document.activeElement !== inputRef.current || q === "") setText(q); }, [q]);
  const suggest = async (t) => {
    const mine = ++newest.current;
    const found = await suggestions(/\S*$/.exec(t)[0]).catch(() => []);
    if (mine === newest.current) { setOptions(found.slice(0, MOST)); setAt(-1); }
  };
  // A condition without its value yet filters nothing, and is no error.
  const change = (t) => { setText(t); apply(t.replace(/(^|\s)[A-Za-z_][\w.]*(>=|<=|!=|=|>|<)$/, "")); setOpen(true); suggest(t); };
  const take = ([word]) => {
    const next = text.replace(/\S*$/, word) + (word.endsWith("=") ? "" : " ");
    change(next);
    inputRef.current.focus();
  };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && isOpen && options.length) { event.preventDefault(); setAt((at + step + options.length + 1) % (options.length + 1)); return; }
    if ((event.key === "Enter" || event.key === "Tab") && isOpen && options[at]) { event.preventDefault(); take(options[at]); return; }
    if (event.key === "Enter") { event.preventDefault(); apply(text); setOpen(false); event.target.blur(); return; }
    if (event.key !== "Escape") return;
    // The browser would empty the box alone, and leave a filter that nobody sees.
    event.preventDefault();
    if (isOpen && options.length && at >= 0) { setAt(-1); setOpen(false); return; }
    setOpen(false);
    if (text) { setText(""); apply(""); } else event.target.blur();
  };
  const shown = isOpen && options.length > 0;
  return html`<div class="search"><input ref=${inputRef} type="search" value=${text} role="combobox" aria-label="Filter the runs" aria-expanded=${shown} aria-controls="filter-options" aria-autocomplete="list" aria-activedescendant=${at >= 0 ? `filter-option-${at}` : null}
      aria-invalid=${error ? "true" : "false"} aria-describedby=${error ? "filter-error" : null} autocomplete="off" spellcheck=${false}
      placeholder="Filter: CartPole solved test>400 policy_lr<0.001 tag=paper"
      onFocus=${() => { setOpen(true); suggest(text); }} onBlur=${() => { setOpen(false); setText(text); }} onInput=${(event) => change(event.target.value)} onKeyDown=${onKey} />
    <ul id="filter-options" class="options panel" role="listbox" aria-label="Suggestions" hidden=${!shown}>${shown && options.map(([word, about], i) => html`<li key=${word} id=${`filter-option-${i}`} role="option" aria-selected=${i === at} onMouseDown=${(event) => { event.preventDefault(); take(options[i]); }}><code>${word}</code><span class="quiet">${about}</span></li>`)}</ul>
    ${error && html`<p id="filter-error" class="bad" role="alert">${error}</p>`}</div>`;
}

export function Quick({ q }) {
  const words = q.split(/\s+/).filter(Boolean);
  const flip = (word) => setQuery({ q: (words.includes(word) ? words.filter((w) => w !== word) : [...words, word]).join(" ") });
  const counts = {};
  for (const run of runs.value.values()) {
    counts[run.status] = (counts[run.status] ?? 0) + 1;
    if (run.solved) counts.solved = (counts.solved ?? 0) + 1;
  }
  return html`<div class="row" role="group" aria-label="Quick filters">${QUICK.filter(([key, , word]) => counts[key] || words.includes(word)).map(([key, text, word]) => html`<button key=${key} class="small" aria-pressed=${words.includes(word)} onClick=${() => flip(word)}>${text} <span class="quiet">${counts[key] ?? 0}</span></button>`)}</div>`;
}
