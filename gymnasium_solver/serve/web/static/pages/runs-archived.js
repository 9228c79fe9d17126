// Runs that were moved out of the list, and the way back.
import { html, useEffect, useState } from "../vendor/ui.js";
import { canWrite, get, post } from "../lib/api.js";
import { ago, count, value } from "../lib/format.js";
import { Dialog, Status, attempt } from "../lib/parts.js";
import { name, refresh, shortId } from "../lib/runs-store.js";

export function Archived({ onClose }) {
  const [found, setFound] = useState(null);
  const [chosen, setChosen] = useState(() => new Set());
  const load = () => attempt(async () => {
    const { columns, rows } = await get("archive");
    setFound(rows.map((row) => Object.fromEntries(columns.map((column, i) => [column, row[i]]))));
    setChosen(new Set());
  });
  useEffect(() => { load(); }, []);
  const flip = (id) => setChosen((old) => { const next = new Set(old); if (!next.delete(id)) next.add(id); return next; });
  const all = found?.length > 0 && found.every((run) => chosen.has(run.id));
  const restore = () => attempt(() => post("runs/restore", { runs: [...chosen] }), (got) => `restored ${got.restored.length}`).then(() => { load(); refresh(); });
  const box = (label, on, onChange) => html`<input type="checkbox" aria-label=${label} checked=${on} onChange=${onChange} />`;
  return html`<${Dialog} title="Archived runs" onClose=${onClose}>
    ${found === null ? html`<p class="quiet">Loading…</p>` : found.length === 0 ? html`<p class="quiet">No run is archived. Select runs in the table to archive them; nothing is deleted.</p>`
      : html`<div class="archived scroll" tabindex="0"><table><thead><tr>${canWrite() && html`<th>${box("Select all archived runs", all, () => setChosen(new Set(all ? [] : found.map((run) => run.id))))}</th>`}<th>run</th><th>status</th><th class="num">test</th><th>started</th></tr></thead>
        <tbody>${found.map((run) => html`<tr key=${run.id}>${canWrite() && html`<td>${box(`Select ${run.id}`, chosen.has(run.id), () => flip(run.id))}</td>`}
          <td title=${run.id}>${run.status === "broken" ? run.id : name(run)} <span class="quiet mono">${shortId(run.id)}</span></td><td><${Status} run=${run} /></td><td class="num">${value(run.test)}</td><td>${ago(run.created_at)}</td></tr>`)}</tbody></table></div>
      ${canWrite() && html`<div class="row"><span class="grow"></span><button class="primary" disabled=${chosen.size === 0} onClick=${restore}>Restore ${chosen.size ? count(chosen.size) : ""}</button></div>`}`}<//>`;
}
