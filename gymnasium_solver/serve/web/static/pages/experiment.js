// One experiment: how far each config and seed is, every score, verdicts, what failed.
import { html, useEffect, useState } from "../vendor/ui.js";
import { apiUrl, canWrite, get, postTrusted } from "../lib/api.js";
import { ago, count, seconds, short, spread, value } from "../lib/format.js";
import { followJobs } from "../lib/jobs.js";
import { Status, attempt } from "../lib/parts.js";
import { useRepeated } from "../lib/repeated.js";
import { go, href } from "../lib/router.js";
import { Scatter } from "../lib/plot.js";
import { Bar, State } from "./experiments.js";

export default function ExperimentPage({ params }) {
  const id = params.experiment;
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const address = `experiments/${encodeURIComponent(id)}`;
  const load = async () => { try { setFound(await get(address)); setError(""); } catch (e) { setError(e.message); } };
  useEffect(() => { load(); }, [id]);
  const isActive = found?.is_running || found?.status === "running";
  useRepeated(load, isActive || !found ? 2000 : 15_000);
  if (!found) return html`<section class="empty" role=${error ? "alert" : null}><h1>${id}</h1><p>${error ? `${error}` : "Loading…"}</p>${error && html`<p class="quiet">One that was just started appears in a moment.</p><p><a href=${href("experiments")}>All experiments</a></p>`}</section>`;
  const call = (action, text) => attempt(() => postTrusted(`${address}/${action}`), text).then(() => { followJobs(); load(); });
  const isResumable = !isActive && found.rows.some((row) => row.status !== "finished");
  const ids = found.rows.filter((row) => row.status !== "waiting").map((row) => row.run);
  return html`<section class="experiment-page" data-status=${found.status}>
    <header class="page-head"><div class="row"><h1>${found.id}</h1><${State} word=${found.is_running && found.status !== "running" ? "running" : found.status} /><span class="grow"></span>
      ${canWrite() && found.is_running && html`<button class="danger" onClick=${() => call("stop", "Its trainings save and stop.")}>Stop</button>`}
      ${canWrite() && isResumable && html`<button class="primary" onClick=${() => call("resume", "It continues with what is left.")}>Resume</button>`}
      ${ids.length > 0 && html`<a class="button" href=${href("compare", { runs: ids.slice(0, 200) })}>Compare curves</a><a class="button" href=${href("/", { q: `experiment=${found.id}` })}>Its runs</a>`}
      ${found.reports.includes("report.html") && html`<a class="button" href=${apiUrl(`${address}/report.html`)} target="_blank" rel="noopener">Report</a>`}</div>
      <p class="quiet">${count(found.groups.length)} ${found.groups.length === 1 ? "config" : "configs"} · ${count(found.n_runs)} runs · ${found.n_solved} solved · started ${ago(found.created_at)}</p>
      <${Bar} share=${found.progress} text=${found.counts} />${found.command && html`<pre class="scroll command" tabindex="0">${found.command}</pre>`}</header>
    ${found.solve && html`<${Solve} solve=${found.solve} />`}
    <${Grid} found=${found} />
    ${found.comparison && html`<${Scores} found=${found} />`}
    <${Problems} found=${found} />
    <${Every} found=${found} /></section>`;
}

const GOOD = ["solved", "learnt"];

/** Of an environment without a config: what was measured and decided, in order, and the verdict. */
function Solve({ solve }) {
  const { verdict, race, winner, restart } = solve;
  const facts = Object.entries(solve.probe ?? {}).filter(([name, fact]) => fact !== null && !["env_id", "problems"].includes(name));
  return html`<section class="panel block solve"><header><h2>Solve</h2><span class="quiet">${solve.env_id}</span><span class="grow"></span>${verdict && html`<span class=${`status ${GOOD.includes(verdict.kind) ? "good" : "warn"}`}>${verdict.kind}</span>`}</header><div class="body">
    <div class="scroll" tabindex="0"><table class="list decisions"><tbody>${(solve.lines ?? []).map(([stage, text], i) => html`<tr key=${i}><th scope="row">${stage}</th><td>${text}</td></tr>`)}</tbody></table></div>
    ${race && html`<div class="scroll" tabindex="0"><table class="scores"><caption class="quiet">Race: mean test return</caption><thead><tr><th>preset</th><th class="num">by seed</th><th class="num">time</th><th></th></tr></thead><tbody>${Object.entries(race).map(([name, one]) => html`<tr key=${name}><td>${name}</td><td class="num">${one.scores.map((score) => value(score)).join(", ")}</td><td class="num">${seconds(one.wall_s)}</td><td>${winner?.name === name ? "goes on" : restart?.name === name ? "restarted with" : ""}</td></tr>`)}</tbody></table></div>`}
    <details><summary>What was measured</summary><table class="list"><tbody>${facts.map(([name, fact]) => html`<tr key=${name}><th scope="row">${name.replaceAll("_", " ")}</th><td>${typeof fact === "number" ? value(fact) : String(fact)}</td></tr>`)}</tbody></table></details>
    ${verdict && html`<p><a class="button" href=${href(`runs/${encodeURIComponent(verdict.run)}`)}>The run that was judged</a></p>`}</div></section>`;
}

const bySeed = (rows) => [...new Set(rows.map((row) => row.seed))].sort((a, b) => a - b);

/** Configs x seeds, a cell each. */
function Grid({ found }) {
  const seeds = bySeed(found.rows);
  const cells = new Map(found.rows.map((row) => [`${row.group}|${row.seed}`, row]));
  const text = (row) => (row.test ? value(row.test.mean) : row.status === "running" ? (row.activity?.phase ? row.activity.of ? `${row.activity.phase} ${row.activity.done}/${row.activity.of}` : row.activity.phase : `${Math.round(100 * (row.progress ?? 0))} %`) : row.status);
  const kind = (row) => (row.solved ? "good" : row.status === "running" ? "running" : ["failed", "killed", "broken"].includes(row.status) ? "bad" : row.status === "finished" ? "done" : "waiting");
  return html`<section class="panel block"><header><h2>Configs and seeds</h2><span class="grow"></span><span class="quiet">mean of the held-out test; ★ solved</span></header><div class="body scroll" tabindex="0"><table class="cells"><thead><tr><th scope="col">config</th>${seeds.map((seed) => html`<th key=${seed} scope="col" class="num">seed ${seed}</th>`)}</tr></thead>
    <tbody>${found.groups.map((group) => html`<tr key=${group}><th scope="row">${group}</th>${seeds.map((seed) => { const row = cells.get(`${group}|${seed}`); return html`<td key=${seed}>${row && html`<a class=${`cell ${kind(row)}`} title=${`${row.run}: ${row.status}${row.why ? `, ${row.why}` : ""}`} href=${row.status === "waiting" ? null : href(`runs/${encodeURIComponent(row.run)}`)} onClick=${row.status === "waiting" ? (e) => e.preventDefault() : null}>${row.solved ? "★ " : ""}${text(row)}${row.status === "running" && html`<i class="fill" style=${{ width: `${100 * (row.progress ?? 0)}%` }}></i>`}</a>`}</td>`; })}</tr>`)}</tbody></table></div></section>`;
}

function Scores({ found }) {
  const { groups, verdicts } = found.comparison;
  const envs = [...new Set(groups.map((g) => g.env_id))];
  const index = new Map(groups.map((g, i) => [g.label, i]));
  return html`<section class="panel block"><header><h2>Scores and verdicts</h2><span class="grow"></span><span class="quiet">interquartile mean with its 95 % interval over seeds</span></header><div class="body">
    <div class="scroll" tabindex="0"><table class="scores"><thead><tr><th>config</th><th class="num">seeds</th><th class="num">IQM</th><th class="num">mean</th><th class="num">solved</th><th class="num">solved after</th><th class="num">time</th></tr></thead>
      <tbody>${groups.map((g) => html`<tr key=${g.label}><td>${g.label}${g.n_untested > 0 && html` <span class="quiet" title="Judged by their best validation, which is too high">${g.n_untested} not tested</span>`}</td><td class="num">${g.scores.length}</td><td class="num"><b>${value(g.iqm.value)}</b>${g.iqm.n > 1 && html` <span class="quiet">[${value(g.iqm.low)}, ${value(g.iqm.high)}]</span>`}</td><td class="num">${value(g.mean.value)}</td><td class="num">${g.threshold === null ? "–" : `${g.n_solved} of ${g.runs.length}`}</td><td class="num">${g.solved_at === null ? "–" : `${short(g.solved_at)} steps`}</td><td class="num">${seconds(g.wall_s)}</td></tr>`)}</tbody></table>
      ${verdicts.length > 0 && html`<ul class="verdicts">${verdicts.map((v, i) => html`<li key=${i}><b>${v.first}</b> against <b>${v.second}</b>: <span class=${`verdict-${v.word.split(" ")[0]}`}>${v.text}</span></li>`)}</ul>`}
      ${verdicts.length === 0 && html`<p class="quiet">${groups.length > 1 ? "Configs of different environments have no common scale." : "One config: there is nothing to compare it with."}</p>`}</div>
    <div class="figures">${envs.map((env) => { const own = groups.filter((g) => g.env_id === env); return html`<figure key=${env} class="plain-figure"><figcaption class="quiet">${env}: the score of every seed</figcaption><${Scatter} height=${200} label=${`Scores of the seeds in ${env}`} xKind="choice" xLabel="" yLabel="score" points=${own.flatMap((g) => g.scores.map((y, i) => ({ x: g.label, y, kind: `g${index.get(g.label) % 8}`, label: `${g.label}, seed ${g.seeds[i]}: ${value(y)}`, onClick: () => go(`runs/${encodeURIComponent(g.runs[i])}`) })))} means=${own.map((g) => ({ x: g.label, y: g.iqm.value, low: g.iqm.n > 2 ? g.iqm.low : null, high: g.iqm.n > 2 ? g.iqm.high : null, label: `IQM ${value(g.iqm.value)}` }))} /></figure>`; })}</div></div></section>`;
}

/** Runs that failed or were killed, with the reason. */
function Problems({ found }) {
  const rows = found.rows.filter((row) => ["failed", "killed", "broken", "interrupted"].includes(row.status));
  if (!rows.length) return null;
  return html`<section class="panel block"><header><h2>Not finished</h2><span class="quiet">${rows.length}; Resume continues them from their last checkpoint</span></header><div class="body"><ul class="plain-list">${rows.map((row) => html`<li key=${row.run} class="row"><${State} word=${row.status} /><a href=${href(`runs/${encodeURIComponent(row.run)}`, { tab: "log" })}>${row.group}, seed ${row.seed}</a><span class="quiet">${row.why}</span></li>`)}</ul></div></section>`;
}

function Every({ found }) {
  return html`<section class="panel block"><header><h2>Every run</h2><span class="quiet">${count(found.rows.length)}</span></header><div class="body scroll" tabindex="0"><table class="list"><thead><tr><th>config</th><th class="num">seed</th><th>status</th><th class="num">test</th><th class="num">best validation</th><th class="num">env steps</th><th class="num">time</th></tr></thead>
    <tbody>${found.rows.map((row) => html`<tr key=${row.run}><td>${row.status === "waiting" ? row.group : html`<a href=${href(`runs/${encodeURIComponent(row.run)}`)}>${row.group}</a>`}</td><td class="num">${row.seed}</td><td><${Status} run=${row} /></td><td class="num">${row.test ? html`<b>${value(row.test.mean)}</b> <span class="quiet">± ${spread(row.test.stderr, row.test.mean)}</span>` : "–"}</td><td class="num">${value(row.best)}</td><td class="num">${short(row.env_steps)}</td><td class="num">${seconds(row.wall_s)}</td></tr>`)}</tbody></table></div></section>`;
}
