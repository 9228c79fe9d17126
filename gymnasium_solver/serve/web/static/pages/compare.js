// Groups of seeds side by side: curves with IQM and band, scores, a verdict only with evidence.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { apiUrl, get } from "../lib/api.js";
import { Chart, Legend } from "../lib/chart.js";
import { saveCsv, savePng, saveSvg } from "../lib/export.js";
import { configText, count, seconds, short, value } from "../lib/format.js";
import { colourVar } from "../lib/palette.js";
import { Select, attempt, throttled, useKeys } from "../lib/parts.js";
import { go, href, setQuery } from "../lib/router.js";
import { followRuns, loaded, refresh, runs, shortId } from "../lib/runs-store.js";
import { follow } from "../lib/stream.js";
import { HandGroups, startByHand } from "./compare-groups.js";
import { Axes, X_LABEL, axesOf } from "./run-charts.js";

const VAL = "val/roll/ep_rew/mean";
const FIXED = ["config", "run", "tag", "hand"];

export default function Compare({ query }) {
  const ids = (query.get("runs") ?? "").split(",").filter(Boolean);
  return ids.length ? html`<${Comparison} ids=${ids} query=${query} />` : html`<${Pick} query=${query} />`;
}

/** Without runs in the address: choose some by a filter. */
function Pick({ query }) {
  const [text, setText] = useState(query.get("q") ?? "");
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => followRuns(), []);
  const load = useMemo(() => throttled(async (q) => {
    try { setFound((await get("select", { q })).order); setError(""); } catch (e) { setError(e.message); }
  }, 200), []);
  useEffect(() => { if (loaded.value) load(text); }, [text, loaded.value]);
  const chosen = (found ?? []).map((n) => runs.value.get(n)).filter(Boolean);
  const open = (event) => { event.preventDefault(); if (chosen.length) go("compare", { runs: chosen.slice(0, 200).map((run) => run.id) }); };
  const envs = {};
  for (const run of chosen) envs[`${run.env_id}:${run.variant ?? run.algo_id}`] = (envs[`${run.env_id}:${run.variant ?? run.algo_id}`] ?? 0) + 1;
  return html`<section class="pick"><h1>Compare</h1><p class="quiet">Choose runs by a filter, or select them in the <a href=${href("/")}>table of runs</a>. Runs whose configs differ only by the seed become one group.</p>
    <form class="row" onSubmit=${open}><div class="search"><input type="search" value=${text} autofocus aria-label="Filter the runs" placeholder="CartPole tag=paper policy_lr<0.01" onInput=${(e) => setText(e.target.value)} /></div><button class="primary" disabled=${!chosen.length}>Compare ${count(Math.min(200, chosen.length))} runs</button></form>
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    <ul class="plain-list">${Object.entries(envs).slice(0, 30).map(([name, n]) => html`<li key=${name}>${name} <span class="quiet">${n} ${n === 1 ? "run" : "runs"}</span></li>`)}</ul></section>`;
}

function Comparison({ ids, query }) {
  const axes = axesOf(query);
  const metric = query.get("metric") ?? VAL, by = query.get("by") ?? "config", ref = query.get("ref") ?? "", seeds = query.get("seeds") !== "0";
  const [data, setData] = useState(null);
  const [error, setError] = useState("");
  const [hidden, setHidden] = useState(() => new Set());
  const version = useRef(0);
  const hand = by === "hand" ? { in: query.get("in") ?? "", names: query.get("names") ?? "" } : {};
  const margin = query.get("margin") ?? "";
  const key = JSON.stringify([ids, metric, by, hand, ref, margin, axes.x, axes.smooth]);
  const load = useMemo(() => throttled(async (wanted, mine) => {
    try {
      const got = await get("groups", wanted);
      if (mine === version.current) { setData(got); setError(""); }
    } catch (e) { if (mine === version.current) setError(e.message); }
  }, 150), []);
  const reload = () => { version.current += 1; load({ runs: ids, metric, by, ...hand, ref, margin, x: axes.x, smooth: axes.smooth || undefined, points: 300 }, version.current); };
  useEffect(reload, [key]);
  useEffect(() => {
    const slow = throttled(() => reload(), 2000);
    return follow(() => ({ watch: ids.slice(0, 100) }), { metrics: slow, meta: slow });
  }, [key]);
  useEffect(() => { if (by === "hand" && !loaded.value) refresh(); }, [by]);
  useKeys({ s: () => setQuery({ seeds: seeds ? "0" : "" }) }, [["s", "show the single seeds or hide them"]]);
  if (error && !data) return html`<section class="empty" role="alert"><h1>Compare</h1><p>${error}</p><p><a href=${href("compare")}>Choose other runs</a></p></section>`;
  if (!data) return html`<p class="boot">Loading…</p>`;
  const group = (v) => setQuery(v === "hand" ? startByHand(data.groups, ids) : { by: v === "config" ? "" : v, names: "", in: "" });
  const envs = [...new Set(data.groups.map((g) => g.env_id))];
  const fields = Object.keys(data.comparison?.differences ?? {});
  return html`<article class="compare-page" data-groups=${data.groups.length}>
    <header class="row run-head-row"><h1>Compare ${count(ids.length)} runs in ${data.groups.length} ${data.groups.length === 1 ? "group" : "groups"}</h1><span class="grow"></span>
      <a class="button" href=${apiUrl("report.html", { runs: ids.slice(0, 50) })} download="report.html">Report</a>
      <a class="button" href=${href("compare")}>Other runs</a></header>
    <div class="row toolbar"><${Metric} metric=${data.metric} metrics=${data.metrics} />
      <${Select} label="group by" value=${by} options=${[["config", "config without seed"], ["run", "single runs"], ["tag", "tags"], ["hand", "by hand"], ...[...new Set([...(FIXED.includes(by) ? [] : [by]), ...fields])].map((f) => [f, f])]} onChange=${group} />
      <label class="field"><input type="checkbox" checked=${seeds} onChange=${() => setQuery({ seeds: seeds ? "0" : "" })} /><span>seeds</span></label>
      <label class="field" title="The smallest difference of scores that matters: a score, or a share of the range"><span>margin</span><input class="mono" size="5" placeholder="1%" value=${margin} onChange=${(e) => setQuery({ margin: e.target.value.trim() })} /></label><span class="grow"></span><${Axes} axes=${axes} /></div>
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    ${by === "hand" && html`<${HandGroups} ids=${ids} query=${query} groups=${data.groups} />`}
    ${envs.map((env) => html`<${Curves} key=${env} env=${env} groups=${data.groups.map((g, i) => ({ ...g, i })).filter((g) => g.env_id === env)} data=${data} axes=${axes} seeds=${seeds} hidden=${hidden} setHidden=${setHidden} />`)}
    <${Scores} data=${data} />
    <${Differences} title="Config fields that differ" rows=${data.comparison?.differences ?? {}} groups=${data.comparison?.groups ?? []} none="All groups have the same config." />
    <${AllFields} ids=${ids} />
    <${Differences} title="Machines and versions that differ" rows=${data.comparison?.machines ?? {}} groups=${data.comparison?.groups ?? []} none="All runs were made on the same kind of machine with the same versions." />
  </article>`;
}

function Metric({ metric, metrics }) {
  return html`<label class="field"><span>metric</span><input class="mono metric-input" list="metric-names" value=${metric} spellcheck=${false} onChange=${(e) => setQuery({ metric: e.target.value === VAL ? "" : e.target.value })} /><datalist id="metric-names">${metrics.map((m) => html`<option key=${m} value=${m} />`)}</datalist></label>`;
}

/** One chart an environment: returns of different environments have no common axis. */
function Curves({ env, groups, data, axes, seeds, hidden, setHidden }) {
  const plot = useRef(null);
  const shown = groups.filter((g) => !hidden.has(g.label));
  const lines = useMemo(() => shown.flatMap((group) => {
    const few = group.n < 2;
    const own = group.lines.filter((line) => line.x.length).flatMap((line) => {
      const name = `${group.label}, seed ${line.seed ?? "–"}`;
      if (few) {
        const main = { key: line.run, label: group.label, colour: group.i, x: line.x, y: line.smooth ?? line.y, width: 1.75 };
        return line.smooth ? [{ ...main, key: `${line.run}/raw`, y: line.y, faint: true, width: 1 }, main] : [main];
      }
      return seeds ? [{ key: line.run, label: name, colour: group.i, x: line.x, y: line.y, faint: true, width: 1 }] : [];
    });
    const center = group.center && { key: `iqm ${group.label}`, label: `${group.label} (IQM, n = ${group.n})`, colour: group.i, x: group.center.x, y: group.center.y, lo: group.center.lo, hi: group.center.hi, width: 2.25 };
    return center ? [...own, center] : own;
  }), [data, seeds, hidden]);
  const level = data.metric.includes("ep_rew/mean") ? groups.find((g) => g.threshold !== null)?.threshold ?? null : null;
  const about = { title: `${env} ${data.metric}`, xLabel: X_LABEL[axes.x], level };
  const few = groups.some((g) => g.n < data.fewest_seeds);
  const csv = () => saveCsv(about.title, ["group", "run", "seed", axes.x, "value", "low", "high", "n"], groups.flatMap((g) => [
    ...(g.center ? g.center.x.map((x, i) => [g.label, "IQM", "", x, g.center.y[i], g.center.lo?.[i], g.center.hi?.[i], g.n]) : []),
    ...g.lines.flatMap((line) => line.x.map((x, i) => [g.label, line.run, line.seed, x, line.y[i], "", "", 1])),
  ]));
  const toggle = (label) => { const next = new Set(hidden); if (next.has(label)) next.delete(label); else next.add(label); setHidden(next); };
  return html`<section class="panel block"><header><h2>${env}</h2><code class="quiet">${data.metric}</code><span class="grow"></span><span class="quiet">Save as</span>
      <span class="seg"><button class="small" onClick=${() => attempt(() => savePng(plot.current, lines, about))}>PNG</button><button class="small" onClick=${() => saveSvg(plot.current, lines, about)}>SVG</button><button class="small" onClick=${csv}>CSV</button></span></header>
    <div class="body">${lines.length ? html`<${Chart} label=${`${data.metric} in ${env}`} lines=${lines} level=${level} height=${340} logX=${axes.logX} logY=${axes.logY} xLabel=${X_LABEL[axes.x]} onPlot=${(u) => { plot.current = u; }} />` : html`<p class="empty">No run has logged ${data.metric}.</p>`}
      <${Legend} items=${groups.map((g) => ({ key: g.label, label: `${g.label}  n = ${g.n}`, colour: g.i }))} hidden=${hidden} onToggle=${toggle} />
      <p class="quiet about">Thick lines: interquartile mean over seeds; bands: 95 % interval over seeds${few ? `, from ${data.fewest_seeds} seeds on` : ""}. Thin lines: single seeds${axes.smooth ? "; raw values where the line is smoothed" : ""}.</p></div></section>`;
}

const estimate = (e) => (e === null || e.value === null ? "–" : html`<b>${value(e.value)}</b>${e.low !== null && html` <span class="quiet">[${value(e.low)}, ${value(e.high)}]</span>`}`);

function Scores({ data }) {
  const c = data.comparison;
  if (!c) return html`<section class="panel block"><div class="body quiet">No run here has been evaluated yet.</div></section>`;
  const verdicts = new Map(c.verdicts.map((v) => [v.first, v]));
  const index = new Map(data.groups.map((g, i) => [g.label, i]));
  const range = spans(c.groups);
  return html`<section class="panel block"><header><h2>Scores</h2><span class="quiet">held-out tests; the unit is the seed</span></header><div class="body scroll" tabindex="0"><table class="scores"><thead><tr><th>group</th><th class="num">seeds</th><th class="num">IQM [95 %]</th><th class="interval-head"></th><th class="num">mean</th><th class="num">solved</th><th class="num">solved after</th><th class="num">time</th><th>verdict</th></tr></thead>
    <tbody>${c.groups.map((g) => html`<tr key=${g.label}><td><i class="swatch" style=${{ background: colourVar(index.get(g.label) ?? 0) }}></i>${g.label}</td><td class="num" title=${g.seeds.join(", ")}>${g.scores.length}</td><td class="num">${estimate(g.iqm)}${g.n_untested ? "*" : ""}</td>
      <td><${Interval} group=${g} range=${range.get(g.env_id)} colour=${index.get(g.label) ?? 0} /></td>
      <td class="num">${value(g.mean.value)}</td><td class="num">${g.threshold === null ? "–" : `${g.n_solved} of ${g.runs.length}`}</td><td class="num">${g.solved_at === null ? "–" : short(g.solved_at)}</td><td class="num">${seconds(g.wall_s)}</td>
      <td class="verdict">${verdicts.has(g.label) ? html`<span class=${`verdict-${verdicts.get(g.label).word.split(" ")[0]}`}>${verdicts.get(g.label).text}</span>` : html`<span class="quiet">${c.verdicts.some((v) => v.second === g.label) ? "the others are compared with this one" : ""}</span>`}
        ${verdicts.has(g.label) && c.groups.length > 2 && html` <button class="plain small" title="Compare the others with this one" onClick=${() => setQuery({ ref: g.label })}>as reference</button>`}</td></tr>`)}</tbody></table>
    ${c.groups.some((g) => g.n_untested) && html`<p class="quiet">* some runs were not tested; their best validation counts, which is too high</p>`}
    ${data.unscored.length > 0 && html`<p class="quiet">Not evaluated yet: ${data.unscored.join("; ")}</p>`}
    ${c.aggregate && html`<h3>Normalised over environments (0: random actions, 1: solved)</h3><table><tbody>${Object.entries(c.aggregate).map(([name, e]) => html`<tr key=${name}><td>${name}</td><td class="num">${estimate(e)}</td><td>${c.ranks ? `mean rank ${value(c.ranks[name])}` : ""}</td></tr>`)}</tbody></table>`}</div></section>`;
}

/** The range of all scores of an environment, for the little interval plots. */
function spans(groups) {
  const found = new Map();
  for (const g of groups) {
    const values = [...g.scores, g.iqm.low, g.iqm.high].filter((v) => v !== null && v !== undefined);
    const [a, b] = found.get(g.env_id) ?? [Infinity, -Infinity];
    found.set(g.env_id, [Math.min(a, ...values), Math.max(b, ...values)]);
  }
  return found;
}

function Interval({ group, range, colour }) {
  const [low, high] = range;
  const at = (v) => (high > low ? 4 + (132 * (v - low)) / (high - low) : 70);
  return html`<svg class="interval" width="140" height="18" role="img" aria-label=${`scores ${group.scores.map((s) => value(s)).join(", ")}`}>
    ${group.iqm.low !== null && html`<line x1=${at(group.iqm.low)} x2=${at(group.iqm.high)} y1="9" y2="9" stroke=${colourVar(colour)} stroke-width="5" stroke-opacity=".3" stroke-linecap="round" />`}
    ${group.scores.map((s, i) => html`<circle key=${i} cx=${at(s)} cy="9" r="2" fill=${colourVar(colour)} fill-opacity=".6" />`)}
    <line x1=${at(group.iqm.value)} x2=${at(group.iqm.value)} y1="3" y2="15" stroke=${colourVar(colour)} stroke-width="2" /></svg>`;
}

function Differences({ title, rows, groups, none }) {
  const names = Object.keys(rows);
  return html`<section class="panel block"><header><h2>${title}</h2><span class="quiet">${names.length || ""}</span></header><div class="body scroll" tabindex="0">${names.length === 0 ? html`<p class="quiet">${none}</p>` : html`<table><thead><tr><th></th>${groups.map((g, i) => html`<th key=${i}>${g.label}</th>`)}</tr></thead><tbody>${names.map((name) => html`<tr key=${name}><td class="mono">${name}</td>${rows[name].map((v, i) => html`<td key=${i} class="mono">${configText(v)}</td>`)}</tr>`)}</tbody></table>`}</div></section>`;
}

/** All fields of the single runs, fetched when opened. */
function AllFields({ ids }) {
  const [data, setData] = useState(null);
  const open = (event) => { if (event.target.open && !data) attempt(async () => setData(await get("diff", { runs: ids.slice(0, 20) }))); };
  return html`<details class="panel block" onToggle=${open}><summary class="body"><h2 class="inline">Fields of the single runs</h2> <span class="quiet">those that differ first${ids.length > 20 ? "; the first 20 runs" : ""}</span></summary>
    <div class="body scroll" tabindex="0">${data && html`<table><thead><tr><th>field</th>${data.runs.map((id) => html`<th key=${id} class="mono"><a href=${href(`runs/${encodeURIComponent(id)}`)}>${shortId(id)}</a></th>`)}</tr></thead><tbody>${data.fields.filter((f) => f.path !== "spec").map((f) => html`<tr key=${f.path} class=${f.same ? "quiet" : ""}><td class="mono">${f.path}</td>${f.same ? html`<td class="mono" colspan=${data.runs.length}>${configText(f.values[0])}</td>` : f.values.map((v, i) => html`<td key=${i} class="mono">${configText(v)}</td>`)}</tr>`)}</tbody></table>`}</div></details>`;
}
