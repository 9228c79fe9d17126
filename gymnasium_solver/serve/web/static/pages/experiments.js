// All experiments and sweeps.
import { html, useEffect, useState } from "../vendor/ui.js";
import { canWrite, get } from "../lib/api.js";
import { ago, count, value } from "../lib/format.js";
import { href } from "../lib/router.js";
import { useRepeated } from "../lib/repeated.js";

export default function Experiments() {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const load = async () => { try { setFound(await get("experiments")); setError(""); } catch (e) { setError(e.message); } };
  useEffect(() => { load(); }, []);
  const isBusy = found && [...found.experiments, ...found.sweeps].some((one) => one.is_running || one.status === "running");
  useRepeated(load, isBusy ? 2000 : 10_000);
  if (error && !found) return html`<section class="empty" role="alert"><h1>Experiments</h1><p>${error}</p></section>`;
  if (!found) return html`<p class="boot">Loading…</p>`;
  const nothing = !found.experiments.length && !found.sweeps.length;
  return html`<section class="experiments-page"><header class="row page-head"><h1>Experiments and sweeps</h1><span class="grow"></span>${canWrite() && html`<a class="button primary" href=${href("start")}>Start one</a>`}</header>
    ${nothing && html`<section class="empty"><p>An experiment trains one or more configs with several seeds, a sweep searches hyper-parameters.</p><pre class="panel">gsolve train CartPole-v1:ppo --seeds 5${"\n"}gsolve sweep CartPole-v1:ppo --trials 30</pre></section>`}
    ${found.experiments.length > 0 && html`<section class="panel block"><header><h2>Experiments</h2><span class="quiet">${count(found.experiments.length)}</span></header><div class="body scroll" tabindex="0"><table class="list"><thead><tr><th>experiment</th><th>status</th><th>progress</th><th class="num">solved</th><th class="phone-less">configs</th><th class="phone-less">started</th></tr></thead>
      <tbody>${found.experiments.map((one) => html`<tr key=${one.id}><td><a href=${href(`experiments/${encodeURIComponent(one.id)}`)}>${one.id}</a></td>${one.status === "broken" ? html`<td colspan="5" class="bad">${one.why}</td>` : html`<td><${State} word=${one.status} /></td><td><${Bar} share=${one.progress} text=${one.counts} /></td><td class="num">${one.n_solved} of ${one.n_runs}</td><td class="configs-cell phone-less">${one.groups.slice(0, 3).join(", ")}${one.groups.length > 3 ? ` and ${one.groups.length - 3} more` : ""}</td><td class="quiet nowrap phone-less">${ago(one.created_at)}</td>`}</tr>`)}</tbody></table></div></section>`}
    ${found.sweeps.length > 0 && html`<section class="panel block"><header><h2>Sweeps</h2><span class="quiet">${count(found.sweeps.length)}</span></header><div class="body scroll" tabindex="0"><table class="list"><thead><tr><th>sweep</th><th>status</th><th>trials</th><th class="num">best</th><th class="phone-less">searched for</th><th class="phone-less">verdict</th><th class="phone-less">started</th></tr></thead>
      <tbody>${found.sweeps.map((one) => html`<tr key=${one.id}><td><a href=${href(`sweeps/${encodeURIComponent(one.id)}`)}>${one.id}</a></td>${one.status === "broken" ? html`<td colspan="6" class="bad">${one.why}</td>` : html`<td><${State} word=${one.status} /></td><td><${Bar} share=${one.trials ? one.done / one.trials : 0} text=${`${count(one.done)} of ${count(one.trials)}`} /></td><td class="num">${value(one.best)}</td><td class="phone-less">${one.goal === "minimize" ? "lowest" : "highest"} ${one.metric_label}, ${one.sampler}</td><td class="quiet phone-less">${one.verdict ?? ""}</td><td class="quiet nowrap phone-less">${ago(new Date(one.created_at).toISOString())}</td>`}</tr>`)}</tbody></table></div></section>`}</section>`;
}

const SIGNS = { running: ["running", "●"], finished: ["good", "✓"], failed: ["bad", "✕"], killed: ["bad", "✕"], interrupted: ["warn", "■"], incomplete: ["warn", "■"], stopped: ["warn", "■"], waiting: ["quiet", "○"], created: ["quiet", "○"], broken: ["bad", "!"] };
export const State = ({ word, text }) => html`<span class=${`status ${SIGNS[word]?.[0] ?? "quiet"}`}><i aria-hidden="true">${SIGNS[word]?.[1] ?? "·"}</i>${text ?? word}</span>`;

export const Bar = ({ share, text }) => html`<span class="progress"><i class="track" role="progressbar" aria-label="Progress" aria-valuenow=${Math.round(100 * (share ?? 0))} aria-valuemin="0" aria-valuemax="100"><i style=${{ width: `${100 * Math.min(1, share ?? 0)}%` }}></i></i><span>${text}</span></span>`;
