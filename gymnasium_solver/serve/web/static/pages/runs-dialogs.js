// Dialogs of the table of runs: columns, saved views, tags.
import { html, useEffect, useState } from "../vendor/ui.js";
import { get, post } from "../lib/api.js";
import { kept } from "../lib/kept.js";
import { Dialog, attempt } from "../lib/parts.js";
import { go, place, setQuery } from "../lib/router.js";
import { refresh } from "../lib/runs-store.js";
import { BUILT_IN, DEFAULT } from "./runs-columns.js";

const views = kept("views", []);

/** Filter, order and columns under a name; they are kept in this browser. */
export function Views({ onClose }) {
  const query = place.value.query;
  const save = (event) => {
    event.preventDefault();
    const label = new FormData(event.target).get("name").trim();
    if (!label) return;
    views.value = [...views.value.filter((v) => v.label !== label), { label, query: query.toString() }];
    event.target.reset();
  };
  const open = (v) => { go("/", Object.fromEntries(new URLSearchParams(v.query))); onClose(); };
  return html`<${Dialog} title="Views" onClose=${onClose}>
    <form class="row" onSubmit=${save}><input name="name" placeholder="Name of what is shown now" aria-label="Name of the view" autofocus /><button class="primary">Save</button></form>
    ${views.value.length === 0 ? html`<p class="quiet">A view is a filter with its order and columns. This browser keeps it; the address of the page is the same thing to send.</p>`
      : html`<ul class="plain-list">${views.value.map((v) => html`<li key=${v.label} class="row"><button class="grow left" onClick=${() => open(v)}><b>${v.label}</b> <code class="quiet">${new URLSearchParams(v.query).get("q") || "all runs"}</code></button><button class="plain" aria-label=${`Forget the view ${v.label}`} onClick=${() => { views.value = views.value.filter((x) => x !== v); }}>✕</button></li>`)}</ul>`}<//>`;
}

export function Columns({ columns, onClose }) {
  const [fields, setFields] = useState([]);
  const [text, setText] = useState("");
  const [dragged, setDragged] = useState("");
  useEffect(() => { attempt(() => get("select", { fields: 1, q: "seed<0" })).then((got) => setFields(got?.fields ?? [])); }, []);
  const names = [...Object.keys(BUILT_IN), ...fields.filter((f) => !(f in BUILT_IN) && !["id", "env", "algo", "val", "tag"].includes(f))];
  const set = (next) => setQuery({ cols: next.join() === DEFAULT.join() ? "" : next.join(",") });
  const move = (c, to) => { const rest = columns.filter((x) => x !== c); rest.splice(Math.max(0, to), 0, c); set(rest); };
  const rest = names.filter((n) => !columns.includes(n) && n.includes(text.trim()));
  const label = (n) => html`<span class=${n in BUILT_IN ? "" : "mono"}>${BUILT_IN[n]?.title ?? n}</span>`;
  return html`<${Dialog} title="Columns" wide=${true} onClose=${onClose}>
    <div class="row"><span class="quiet grow">Drag to change the order. Of the default columns, those that say the same everywhere hide themselves.</span><button onClick=${() => set(DEFAULT)}>Default</button></div>
    <ol class="chosen-columns">${columns.map((c, i) => html`<li key=${c} draggable="true" class=${dragged === c ? "dragged" : ""} onDragStart=${() => setDragged(c)} onDragEnd=${() => setDragged("")} onDragOver=${(e) => e.preventDefault()} onDrop=${(e) => { e.preventDefault(); if (dragged) move(dragged, i); }}>
      <label class="field"><input type="checkbox" checked=${true} onChange=${() => set(columns.filter((x) => x !== c))} />${label(c)}</label><span class="grow"></span>
      <button class="plain small" aria-label=${`Move ${c} to the left`} disabled=${i === 0} onClick=${() => move(c, i - 1)}>←</button><button class="plain small" aria-label=${`Move ${c} to the right`} disabled=${i === columns.length - 1} onClick=${() => move(c, i + 1)}>→</button></li>`)}</ol>
    <input type="search" value=${text} placeholder="Search, also config fields" aria-label="Search the columns" onInput=${(e) => setText(e.target.value)} />
    <div class="choices three">${rest.map((n) => html`<label key=${n} class="field" title=${n}><input type="checkbox" checked=${false} onChange=${() => set([...columns, n])} />${label(n)}</label>`)}</div><//>`;
}

export function Tags({ chosen, onClose }) {
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
