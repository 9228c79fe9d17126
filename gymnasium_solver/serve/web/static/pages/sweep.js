// One sweep: the trials, what mattered, the final on fresh seeds; stop, resume, keep the winner.
import { html, useEffect, useState } from "../vendor/ui.js";
import { apiUrl, canWrite, get, postTrusted } from "../lib/api.js";
import { ago, count, fieldText, seconds, short, value } from "../lib/format.js";
import { followJobs } from "../lib/jobs.js";
import { Dialog, Select, attempt, toast } from "../lib/parts.js";
import { useRepeated } from "../lib/repeated.js";
import { href, setQuery } from "../lib/router.js";
import { Parallel, Scatter } from "../lib/plot.js";
import { Bar, State } from "./experiments.js";

export default function SweepPage({ params, query }) {
  const id = params.sweep;
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  const [dialog, setDialog] = useState(null);
  const address = `sweeps/${encodeURIComponent(id)}`;
  const load = async () => { try { setFound(await get(address)); setError(""); } catch (e) { setError(e.message); } };
  useEffect(() => { load(); }, [id]);
  useRepeated(load, found?.is_running || !found ? 2000 : 15_000);
  if (!found) return html`<section class="empty" role=${error ? "alert" : null}><h1>${id}</h1><p>${error || "Loading…"}</p>${error && html`<p class="quiet">One that was just started appears in a moment.</p><p><a href=${href("experiments")}>All sweeps</a></p>`}</section>`;
  const call = (action, body, text) => attempt(() => postTrusted(`${address}/${action}`, body), text).then((got) => { followJobs(); load(); return got; });
  const names = Object.keys(found.params);
  const scored = found.rows.filter((row) => row.value !== null && row.state !== "failed");
  const chosen = query.has("trial") ? Number(query.get("trial")) : null;
  const choose = (number) => setQuery({ trial: number === chosen ? "" : String(number) });
  return html`<section class="sweep-page" data-status=${found.status}>
    <header class="page-head"><div class="row"><h1>${found.id}</h1><${State} word=${found.status} /><span class="grow"></span>
      ${canWrite() && found.is_running && html`<button class="danger" onClick=${() => call("stop", {}, "Its trainings save and stop.")}>Stop</button>`}
      ${canWrite() && !found.is_running && html`<button class=${found.status === "stopped" ? "primary" : ""} onClick=${() => setDialog("resume")}>${found.status === "stopped" ? "Resume…" : "More trials…"}</button>`}
      ${canWrite() && scored.length > 0 && html`<button class=${found.status === "finished" && !found.result.is_own ? "primary" : ""} onClick=${() => setDialog("keep")}>Keep as a config…</button>`}
      ${found.reports.includes("report.html") && html`<a class="button" href=${apiUrl(`${address}/report.html`)} target="_blank" rel="noopener">Report</a>`}</div>
      <p class="quiet">${found.config} · ${found.goal === "minimize" ? "lowest" : "highest"} ${found.metric_label} · ${found.sampler}${found.seeds > 1 ? ` · ${found.seeds} seeds a trial` : ""} · started ${ago(new Date(found.created_at).toISOString())}</p>
      <${Bar} share=${found.trials ? found.done / found.trials : 0} text=${`${count(found.done)} of ${count(found.trials)} trials`} />
      ${found.running.length > 0 && html`<ul class="plain-list running-list">${found.running.map((one) => html`<li key=${one.run} class="row"><a href=${href(`runs/${encodeURIComponent(one.run)}`)}>${one.name}</a><${Bar} share=${one.progress} text=${`${one.best === null ? "" : `validation ${value(one.best)} · `}${seconds(one.wall_s)}`} /></li>`)}</ul>`}</header>
    <${Result} found=${found} />
    <div class="sweep-charts">
      <section class="panel"><header><h2>Best so far</h2><span class="grow"></span><span class="quiet">${found.result.final?.length ? "right of the line: the final on fresh seeds" : ""}</span></header><div class="body"><${History} found=${found} scored=${scored} chosen=${chosen} choose=${choose} /></div></section>
      <section class="panel"><header><h2>What mattered</h2></header><div class="body"><${Importance} found=${found} /></div></section>
      <section class="panel wide"><header><h2>All parameters together</h2><span class="grow"></span><span class="quiet">a line is a trial, the stronger the better; click to choose one</span></header><div class="body"><${Parallel} label="Parallel coordinates of the trials" sign=${found.sign} scoreName=${found.metric} fields=${names.map((n) => [n, found.scales[n] ?? "linear"])} rows=${scored.map((row) => ({ key: row.number, values: Object.fromEntries(names.map((n) => [n, start(row.params[n])])), score: row.value, label: about(row, found) }))} chosen=${chosen} onChoose=${choose} /></div></section>
      <${Against} found=${found} scored=${scored} names=${names} query=${query} chosen=${chosen} choose=${choose} />
    </div>
    <${Trials} found=${found} names=${names} chosen=${chosen} choose=${choose} />
    ${dialog === "resume" && html`<${Resume} found=${found} onClose=${() => setDialog(null)} onStart=${(trials) => call("resume", trials ? { trials } : {}, "It continues.").then((got) => got && setDialog(null))} />`}
    ${dialog === "keep" && html`<${Keep} found=${found} chosen=${chosen} onClose=${() => setDialog(null)} onKeep=${(body) => call("keep", body).then((got) => { if (got) { setDialog(null); toast(`Written to ${got.file} as ${got.config}.`, "good", [href("start", { config: got.config }), "Train it"]); } })} />`}
  </section>`;
}

/** A schedule counts as its start, so that the config's own values have a place among the numbers. */
const start = (v) => (v !== null && typeof v === "object" && typeof v.start === "number" ? v.start : v);
const about = (row, found) => [`trial ${row.number}${row.own ? " (the config's own values)" : ""}: ${found.metric} ${value(row.value)}`, ...Object.entries(row.params).map(([n, v]) => `${n} ${fieldText(v, 60)}`)].join("\n");

function Result({ found }) {
  const { result } = found;
  const final = result.final ?? [];
  if (!final.length && !result.verdict && !found.texts.fresh) return found.status === "running" ? null : html`<p class="hint">${found.rows.length ? "No final yet: the score of a search is the best of many, and too good to be quoted." : "No trial yet."}</p>`;
  return html`<section class="panel block"><header><h2>Final on fresh seeds</h2><span class="grow"></span>${result.winner !== null && result.winner !== undefined && html`<span>winner: <b>trial ${result.winner}</b>${result.is_own ? " (the config's own values)" : ""}</span>`}</header><div class="body">
    ${result.verdict && html`<p class=${result.verdict.startsWith("better") ? "good" : ""}><b>${result.verdict}</b></p>`}
    ${final.length > 0 && html`<div class="scroll" tabindex="0"><table class="list"><thead><tr><th>trial</th><th class="num" title=${found.metric_label}>${found.metric}</th><th class="num">test score</th><th class="num">95 % interval</th><th class="num">solved</th><th class="num">env steps</th></tr></thead><tbody>${final.map((row) => html`<tr key=${row.trial}><td>trial ${row.trial}${row.own ? " (own values)" : ""}</td><td class="num"><b>${value(row.value)}</b></td><td class="num">${value(row.score)}</td><td class="num">${row.interval ? `${value(row.interval[0])} to ${value(row.interval[1])}` : ""}</td><td class="num">${row.solved} of ${row.seeds}</td><td class="num">${short(row.env_steps)}</td></tr>`)}</tbody></table></div>`}
    ${found.texts.choice && html`<p class="quiet">${found.texts.choice}</p>`}${found.texts.fresh && html`<p>${found.texts.fresh}</p>`}</div></section>`;
}

/** The trials in their order with the best so far; beside them the seeds of the final. */
function History({ found, scored, chosen, choose }) {
  const order = [...scored].sort((a, b) => a.number - b.number);
  const complete = order.filter((row) => row.state === "complete");
  let best = -Infinity;
  const steps = complete.map((row) => { best = Math.max(best, found.sign * row.value); return [row.number, found.sign * best]; });
  const last = Math.max(0, ...found.rows.map((row) => row.number));
  const final = found.result.final ?? [];
  const gap = Math.max(1.5, last / 14);
  const place = (i) => last + gap * (i + 1);
  if (steps.length) steps.push([last, steps.at(-1)[1]]);
  return html`<${Scatter} label="Score of each trial, the best so far, and the final" xLabel="trial" yLabel=${found.metric} steps=${steps} breakAt=${final.length ? last + gap / 2 : null}
    points=${[...order.map((row) => ({ x: row.number, y: row.value, kind: row.state === "pruned" ? "faint" : row.own ? "own" : "", label: about(row, found), isChosen: row.number === chosen, onClick: () => choose(row.number) })),
      ...final.flatMap((row, i) => (row.values ?? []).map((y) => ({ x: place(i), y, kind: row.own ? "own" : "final", label: `final, trial ${row.trial}${row.own ? " (own values)" : ""}: ${value(y)}` })))]}
    means=${final.map((row, i) => ({ x: place(i), y: row.value, label: `final, trial ${row.trial}: ${value(row.value)}` }))} />
    <p class="keys-line quiet"><i class="k k0"></i>trial <i class="k own"></i>the config's own values ${final.length > 0 && html`<i class="k final"></i>final`} <i class="k k1"></i>best so far</p>`;
}

function Importance({ found }) {
  if (!found.importances.length) return html`<p class="quiet">Too few trials to tell which parameters matter.</p>`;
  const percent = (x) => `${Math.round(100 * x)} %`;
  return html`<ul class="bars-list">${found.importances.map(([name, share, low, high]) => html`<li key=${name}><span class="mono">${name}</span><span class="bar-track" role="img" aria-label=${`${percent(share)}, 90 % of repeats from ${percent(low)} to ${percent(high)}`}><i class="share" style=${{ width: `${100 * Math.max(0, share)}%` }}></i><i class="interval-line" style=${{ left: `${100 * Math.max(0, low)}%`, width: `${100 * Math.min(1, high - Math.max(0, low))}%` }}></i></span><span class="num">${percent(share)} <span class="quiet">${percent(low)} to ${percent(high)}</span></span></li>`)}</ul>
    <p class="quiet">The share of the variance that each explains by itself, and where 90 % of repeats lie that draw the trials anew. One that reaches 0 % is not shown to matter, nor shown not to.</p>`;
}

/** The score against any parameter, or against what a trial cost. */
function Against({ found, scored, names, query, chosen, choose }) {
  const field = query.get("against") ?? found.importances[0]?.[0] ?? names[0];
  const options = [...names.map((n) => [n, n]), ["env_steps", "env steps"]];
  const x = (row) => (field === "env_steps" ? row.env_steps : start(row.params[field]));
  return html`<section class="panel wide"><header><h2>Score against</h2><${Select} label="field" value=${field} options=${options} onChange=${(v) => setQuery({ against: v })} /></header><div class="body"><${Scatter} label=${`Score against ${field}`} xKind=${found.scales[field] ?? "linear"} xLabel=${field} yLabel=${found.metric} points=${scored.filter((row) => x(row) !== null && x(row) !== undefined).map((row) => ({ x: x(row), y: row.value, kind: row.state === "pruned" ? "faint" : row.own ? "own" : "", label: about(row, found), isChosen: row.number === chosen, onClick: () => choose(row.number) }))} /></div></section>`;
}

function Trials({ found, names, chosen, choose }) {
  const [by, setBy] = useState("rank");
  const rows = by === "rank" ? found.rows : [...found.rows].sort((a, b) => a.number - b.number);
  const seedScores = (row) => (row.scores?.length > 1 ? row.scores.map((s) => value(s)).join(", ") : "");
  return html`<section class="panel block"><header><h2>Trials</h2><span class="quiet">${count(found.rows.length)}</span><span class="grow"></span><div class="seg" role="group" aria-label="Order">${[["rank", "best first"], ["number", "by number"]].map(([key, text]) => html`<button key=${key} class="small" aria-pressed=${by === key} onClick=${() => setBy(key)}>${text}</button>`)}</div></header>
    <div class="body scroll" tabindex="0"><table class="list trials"><thead><tr><th>trial</th><th>state</th><th class="num" title=${found.metric_label}>${found.metric}</th>${names.map((n) => html`<th key=${n} class="num mono">${n}</th>`)}<th class="num">env steps</th><th>runs</th></tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row.number} class=${row.number === chosen ? "chosen" : ""} onClick=${(e) => { if (!e.target.closest("a")) choose(row.number); }}><td class="nowrap">${row.number}${row.own && html` <span class="chip">own values</span>`}${row.on_front && html` <span class="chip" title="On the Pareto front of score and cost">front</span>`}${row.number === found.result.winner && html` <span class="chip good">winner</span>`}</td><td><${State} word=${row.state === "complete" ? "finished" : row.state === "pruned" ? "stopped" : row.state} text=${row.state} />${row.reason && html` <span class="quiet">${row.reason}</span>`}</td><td class="num" title=${seedScores(row)}><b>${value(row.value)}</b></td>${names.map((n) => html`<td key=${n} class="num mono">${row.params[n] === undefined ? "" : fieldText(row.params[n])}</td>`)}<td class="num">${row.env_steps ? short(row.env_steps) : "–"}</td><td class="nowrap">${row.runs.map((run, i) => html`<a key=${run} href=${href(`runs/${encodeURIComponent(run)}`)}>${row.runs.length === 1 ? "open" : `seed ${i}`}</a> `)}</td></tr>`)}</tbody></table></div></section>`;
}

function Resume({ found, onClose, onStart }) {
  const submit = (event) => { event.preventDefault(); const n = Number(new FormData(event.target).get("trials")); onStart(n > found.trials ? n : 0); };
  return html`<${Dialog} title=${found.status === "stopped" ? "Resume the sweep" : "More trials"} onClose=${onClose}><form class="menu-form" onSubmit=${submit}>
    <p>It continues where it was, with the same ranges${found.status === "stopped" ? "" : "; the final is played again"}.</p>
    <label>Trials in all<input name="trials" type="number" min=${found.status === "stopped" ? found.trials : found.trials + 1} value=${found.status === "stopped" ? found.trials : found.trials + 10} autofocus /></label>
    <div class="row"><button class="primary">${found.status === "stopped" ? "Resume" : "Start"}</button></div></form><//>`;
}

function Keep({ found, chosen, onClose, onKeep }) {
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setBusy(true);
    await onKeep({ variant: form.get("variant").trim(), trial: Number(form.get("trial")) });
    setBusy(false);
  };
  const winner = found.result.winner ?? found.rows[0]?.number;
  const algorithm = found.config.split(":")[1] ?? "tuned";
  return html`<${Dialog} title="Keep as a config" onClose=${onClose}><form class="menu-form" onSubmit=${submit}>
    <p>Writes the values of a trial as a variant of your own config file, with where they come from.${!found.result.final?.length ? " They are not confirmed on fresh seeds." : ""}</p>
    <label>Trial<select name="trial">${[...new Set([chosen ?? winner, winner])].map((n) => html`<option key=${n} value=${n}>trial ${n}${n === winner ? (found.result.final?.length ? " (winner)" : " (best so far)") : ""}</option>`)}</select></label>
    <label>Name of the variant<input name="variant" value=${`${algorithm.split("_")[0]}_tuned`} pattern="[A-Za-z][A-Za-z0-9_]*" required autofocus /></label>
    <div class="row"><button class="primary" disabled=${isBusy}>${isBusy ? "Writing…" : "Write"}</button></div></form><//>`;
}
