// Groups made by hand: named, filled by dragging runs, by a list beside each run, or by a filter.
// The address holds them: `names` are the names, `in` has the group of each run.
import { html, useEffect, useState } from "../vendor/ui.js";
import { get } from "../lib/api.js";
import { value } from "../lib/format.js";
import { colourVar } from "../lib/palette.js";
import { attempt, toast } from "../lib/parts.js";
import { place, setQuery } from "../lib/router.js";
import { runs, shortId } from "../lib/runs-store.js";

const OUT = "-";
const MOST = 20;

/** What the address says: {names, places}, a group's number or "-" for every run. */
export function handOf(query, ids) {
  const names = (query.get("names") ?? "").split("|");
  const places = (query.get("in") ?? "").split(",");
  return { names, places: ids.map((_, i) => (places[i] in names ? places[i] : OUT)) };
}

/** Changes of the address that turn the groups as they are now into groups made by hand. */
export function startByHand(groups, ids) {
  const kept = groups.slice(0, MOST);
  const at = new Map(kept.flatMap((group, i) => group.lines.map((line) => [line.run, i])));
  return { by: "hand", ref: "", names: kept.map((group) => clean(group.label)).join("|"), in: ids.map((id) => String(at.get(id) ?? OUT)).join(",") };
}

const clean = (text) => text.replaceAll("|", "/").slice(0, 80);

export function HandGroups({ ids, query, groups }) {
  const { names, places } = handOf(query, ids);
  const [over, setOver] = useState(null);
  const known = new Map([...runs.value.values()].map((run) => [run.id, run]));
  // Changes begin with the address as it is now: what is drawn may be older by a moment.
  const change = (make) => { const now = handOf(place.value.query, ids); const next = { ...now, ...make(now) }; setQuery({ names: next.names.join("|") || " ", in: next.places.join(",") }); };
  const move = (chosen, to) => change((now) => ({ places: now.places.map((old, i) => (chosen.includes(ids[i]) ? to : old)) }));
  const rename = (i, text) => change((now) => ({ names: now.names.map((old, j) => (j === i ? clean(text) : old)) }));
  const add = () => change((now) => ({ names: [...now.names, `group ${now.names.length + 1}`] }));
  const remove = (i) => change((now) => ({ names: now.names.filter((_, j) => j !== i), places: now.places.map((p) => (p === OUT || Number(p) === i ? OUT : String(Number(p) - (Number(p) > i)))) }));
  const drop = (event, to) => {
    event.preventDefault();
    setOver(null);
    const id = event.dataTransfer.getData("text/plain");
    if (ids.includes(id)) move([id], to);
  };
  const fill = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const got = await attempt(() => get("select", { q: form.get("words") }));
    if (!got) return;
    const chosen = got.order.map((n) => runs.value.get(n)?.id).filter((id) => ids.includes(id));
    if (chosen.length) move(chosen, form.get("place")); else toast("No run of this comparison matches.", "bad");
  };
  const colourOf = (text, i) => { const at = groups.findIndex((group) => group.label === (text.trim() || `group ${i + 1}`)); return at < 0 ? "var(--line)" : colourVar(at); };
  const columns = [...names.map((text, i) => ({ text, place: String(i) })), { text: "Left out", place: OUT }];
  return html`<section class="panel block hand" aria-label="Groups made by hand"><header><h2>Groups</h2><span class="quiet">Drag runs, or choose beside each. The address keeps it.</span><span class="grow"></span>
      <form class="row" onSubmit=${fill}><input name="words" class="mono" required placeholder="tag=paper seed<5" aria-label="Runs that match" spellcheck=${false} /><label class="field"><span>go to</span><select name="place" aria-label="Group for the runs that match">${columns.map((c) => html`<option key=${c.place} value=${c.place}>${c.text || `group ${Number(c.place) + 1}`}</option>`)}</select></label><button class="small">Move</button></form>
      <button class="small" disabled=${names.length >= MOST} onClick=${add}>New group</button></header>
    <div class="body hand-groups">${columns.map(({ text, place }, i) => html`<div key=${place} class=${`hand-group ${over === place ? "over" : ""} ${place === OUT ? "out" : ""}`} data-group=${place}
        onDragOver=${(event) => { event.preventDefault(); if (over !== place) setOver(place); }} onDragLeave=${() => setOver(null)} onDrop=${(event) => drop(event, place)}>
      ${place === OUT ? html`<h3 class="quiet">Left out</h3>` : html`<div class="row"><i class="swatch" style=${{ background: colourOf(text, i) }}></i><${Name} text=${text} label=${`Name of group ${i + 1}`} onDone=${(typed) => rename(i, typed)} /><button class="plain small" aria-label=${`Remove the group ${text}`} title="Remove the group; its runs are left out" onClick=${() => remove(i)}>×</button></div>`}
      <ul class="plain-list">${ids.filter((_, j) => places[j] === place).map((id) => html`<li key=${id} draggable="true" title=${id} onDragStart=${(event) => { event.dataTransfer.setData("text/plain", id); event.dataTransfer.effectAllowed = "move"; }}>
        <${Run} run=${known.get(id)} id=${id} /><select aria-label=${`Group of ${id}`} value=${place} onChange=${(event) => move([id], event.target.value)}>${columns.map((c) => html`<option key=${c.place} value=${c.place} selected=${c.place === place}>${c.text || `group ${Number(c.place) + 1}`}</option>`)}</select></li>`)}</ul></div>`)}</div></section>`;
}

/** Keeps what is typed while new data arrive and everything around it is drawn again. */
function Name({ text, label, onDone }) {
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  return html`<input value=${typed} aria-label=${label} maxlength="80" onInput=${(event) => setTyped(event.target.value)} onChange=${(event) => onDone(event.target.value)} />`;
}

const Run = ({ run, id }) => html`<span class="hand-run">${run && html`<span>seed ${run.seed ?? "–"} · ${run.test === null ? "no test" : value(run.test)}</span> `}<span class="mono quiet">${shortId(id)}</span></span>`;
