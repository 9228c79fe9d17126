// Groups of seeds side by side: curves with IQM and band, scores, a verdict only with evidence. Curves come
// first; intervals and scores, which take longer, follow.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { apiUrl, get } from "../lib/api.js";
import { Chart, Legend } from "../lib/chart.js";
import { MOST, VAL, axesOf, curvesOf, groupingOf, idsOf } from "../lib/early.js";
import { saveCsv, savePng, saveSvg } from "../lib/export.js";
import { configText, count, seconds, short, value } from "../lib/format.js";
import { colourVar } from "../lib/palette.js";
import { ColumnsChoice, Panel, PanelGroup, keyMetrics } from "../lib/panel.js";
import { Scatter } from "../lib/plot.js";
import { Dialog, Select, attempt, throttled, useKeys } from "../lib/parts.js";
import { go, href, setQuery } from "../lib/router.js";
import { followRuns, loaded, refresh, runs, shortId } from "../lib/runs-store.js";
import { useSeen } from "../lib/series.js";
import { follow } from "../lib/stream.js";
import { HandGroups, startByHand } from "./compare-groups.js";
import { Axes, X_LABEL } from "./run-charts.js";

const FIXED = ["config", "run", "tag", "hand"];
const FEW = 40;  // up to so many runs the key metrics are drawn without being asked for
const ALL = "*";  // the filter that every run matches
const BANDS = 8;  // groups per request for intervals

export default function Compare({ query }) {
  const filter = query.get("filter");
  const ids = idsOf(query);
  if (filter !== null) return html`<${Filtered} key=${filter} filter=${filter} query=${query} />`;
  return ids.length ? html`<${Comparison} ids=${ids.slice(0, MOST)} total=${ids.length} query=${query} />` : html`<${Pick} query=${query} />`;
}

/** The ids of the runs that a filter accepts, newest first; null before the answer. */
function useFiltered(text) {
  const [found, setFound] = useState(null);
  const [error, setError] = useState("");
  useEffect(() => followRuns(), []);
  const load = useMemo(() => throttled(async (q) => {
    try { setFound((await get("select", { q })).order); setError(""); } catch (e) { setError(e.message); }
  }, 200), []);
  useEffect(() => { if (loaded.value) load(text); }, [text, loaded.value]);
  return { chosen: found && found.map((n) => runs.value.get(n)).filter(Boolean), error };
}

/** The newest runs that match the filter in the address. */
function Filtered({ filter, query }) {
  const { chosen, error } = useFiltered(filter === ALL ? "" : filter);
  const ids = useMemo(() => (chosen ?? []).slice(0, MOST).map((run) => run.id), [chosen?.map((run) => run.id).join()]);
  if (error) return html`<section class="empty" role="alert"><h1>Compare</h1><p>${error}</p><p><a href=${href("compare", { q: filter })}>Change the filter</a></p></section>`;
  if (!chosen) return html`<p class="boot">Loading…</p>`;
  if (!ids.length) return html`<section class="empty"><h1>Compare</h1><p>No run matches ${filter}.</p><p><a href=${href("compare", { q: filter })}>Change the filter</a></p></section>`;
  return html`<${Comparison} ids=${ids} total=${chosen.length} query=${query} />`;
}

/** Without runs in the address: choose some by a filter. */
function Pick({ query }) {
  const [text, setText] = useState(query.get("q") ?? "");
  const { chosen: found, error } = useFiltered(text);
  const chosen = found ?? [];
  const open = (event) => {
    event.preventDefault();
    if (chosen.length > FEW) go("compare", { filter: text.trim() || ALL });
    else if (chosen.length) go("compare", { runs: chosen.map((run) => run.id) });
  };
  const envs = {};
  for (const run of chosen) envs[`${run.env_id}:${run.variant ?? run.algo_id}`] = (envs[`${run.env_id}:${run.variant ?? run.algo_id}`] ?? 0) + 1;
  const isCut = chosen.length > MOST;
  return html`<section class="pick"><h1>Compare</h1><p class="quiet">Choose runs by a filter, or select them in the <a href=${href("/")}>table of runs</a>. Runs whose configs differ only by the seed become one group.</p>
    <form class="row" onSubmit=${open}><div class="search"><input type="search" value=${text} autofocus aria-label="Filter the runs" placeholder="CartPole tag=paper policy_lr<0.01" onInput=${(e) => setText(e.target.value)} /></div><button class="primary" disabled=${!chosen.length}>Compare ${isCut ? `the newest ${MOST} of ${count(chosen.length)}` : count(chosen.length)} runs</button></form>
    ${error && html`<p class="bad" role="alert">${error}</p>`}
    <ul class="plain-list">${Object.entries(envs).slice(0, 30).map(([name, n]) => html`<li key=${name}>${name} <span class="quiet">${n} ${n === 1 ? "run" : "runs"}</span></li>`)}</ul></section>`;
}

/** An answer that is asked for again when `key` or `version` changes; the newest one counts. */
function useAnswer(ask, key, version = 0, active = true) {
  const [state, setState] = useState({ data: null, error: "" });
  useEffect(() => {
    if (!active) return undefined;
    let isCurrent = true;
    ask((data) => isCurrent && setState({ data, error: "" })).catch((e) => isCurrent && setState((old) => ({ ...old, error: e.message })));
    return () => { isCurrent = false; };
  }, [key, version, active]);
  return state;
}

/** Groups with the curves of one metric; the intervals arrive afterwards, some groups at a time. */
function useCurves(grouping, metric, axes, version, active = true) {
  const wanted = { ...grouping, x: axes.x, smooth: axes.smooth || undefined };
  const key = JSON.stringify([wanted, metric]);
  const complete = useRef("");  // what is drawn with its intervals: new data of a run in training replace it as a whole
  return useAnswer(async (take) => {
    const got = await get("groups", curvesOf(grouping, metric, axes));
    const curves = got.curves[metric];
    const due = curves.flatMap((curve, i) => (curve.center && got.groups[i].n >= got.fewest_seeds ? [i] : []));
    const told = { metric, by: grouping.by, ...got, curves, n_bands: 0, due: due.length };
    const isNew = complete.current !== key;
    if (isNew || !due.length) take(told);
    const starts = [...new Set(due.map((i) => i - (i % BANDS)))];
    for (const first of starts) {
      const { bands } = await get("bands", { ...wanted, metric, first, count: BANDS });
      bands.forEach((band, i) => { if (band) curves[first + i] = { ...curves[first + i], center: { ...curves[first + i].center, ...band } }; });
      told.n_bands += due.filter((i) => i >= first && i < first + BANDS).length;
      if (isNew || told.n_bands === due.length) take({ ...told, curves: [...curves] });
    }
    complete.current = key;
  }, key, version, active);
}

function Comparison({ ids, total, query }) {
  const axes = axesOf(query);
  const metric = query.get("metric") ?? VAL, ref = query.get("ref") ?? "", margin = query.get("margin") ?? "", seeds = query.get("seeds") !== "0";
  const grouping = groupingOf(query, ids), { by } = grouping;
  const [version, setVersion] = useState(0);
  const [hidden, setHidden] = useState(() => new Set());
  const { data, error } = useCurves(grouping, metric, axes, version);
  const judged = useAnswer(async (take) => take(await get("scores", { ...grouping, ref, margin })), JSON.stringify([grouping, ref, margin]), version, Boolean(data));
  const names = useAnswer(async (take) => take((await get("metrics", { runs: ids })).metrics), JSON.stringify(ids), 0, Boolean(data));
  useEffect(() => {
    const slow = throttled(() => setVersion((v) => v + 1), 3000);
    return follow(() => ({ watch: ids.slice(0, 100) }), { metrics: slow, meta: slow });
  }, [ids.join()]);
  useEffect(() => { if (by === "hand" && !loaded.value) refresh(); }, [by]);
  useKeys({ s: () => setQuery({ seeds: seeds ? "0" : "" }) }, [["s", "show the single seeds or hide them"]]);
  if (error && !data) return html`<section class="empty" role="alert"><h1>Compare</h1><p>${error}</p><p><a href=${href("compare")}>Choose other runs</a></p></section>`;
  if (!data) return html`<p class="boot">Loading the curves of ${count(ids.length)} runs…</p>`;
  const groups = data.groups.map((g, i) => ({ ...g, i, short: g.label }));
  const envs = [...new Set(groups.map((g) => g.env_id))];
  for (const env of envs) shorten(groups.filter((g) => g.env_id === env));
  const regroup = (v) => setQuery(v === "hand" ? startByHand(data.groups.map((g, i) => ({ ...g, lines: data.curves[i].lines })), ids) : { by: v === "config" ? "" : v, names: "", in: "" });
  const comparison = judged.data?.comparison ?? null;
  const fields = Object.keys(comparison?.differences ?? {});
  const known = names.data ?? [];
  const shared = { groups, grouping, axes, seeds, hidden, setHidden, version };
  return html`<article class="compare-page" data-groups=${groups.length}>
    <header class="row run-head-row"><h1>Compare ${count(ids.length)} runs in ${groups.length} ${groups.length === 1 ? "group" : "groups"}</h1><span class="grow"></span>
      <a class="button" href=${apiUrl("report.html", { runs: ids.slice(0, 50) })} download="report.html" title=${ids.length > 50 ? "of the first 50 runs" : ""}>Report</a>
      <a class="button" href=${href("compare", query.get("filter") ? { q: query.get("filter") } : {})}>Other runs</a></header>
    ${total > ids.length && html`<p class="hint" role="status">These are the newest ${MOST} of ${count(total)} runs, the most that one comparison takes. <a href=${href("compare", { q: query.get("filter") ?? "" })}>Narrow the filter</a> to choose others.</p>`}
    <div class="row toolbar"><${MetricChoice} metric=${metric} metrics=${known} />
      <${Select} label="group by" value=${by} options=${[["config", "config without seed"], ["run", "single runs"], ["tag", "tags"], ["hand", "by hand"], ...[...new Set([...(FIXED.includes(by) ? [] : [by]), ...fields])].map((f) => [f, f])]} onChange=${regroup} />
      ${by === "config" && html`<${Ignored} fields=${fields} ignored=${grouping.ignore.split(",").filter(Boolean)} />`}
      <label class="field"><input type="checkbox" checked=${seeds} onChange=${() => setQuery({ seeds: seeds ? "0" : "" })} /><span>seeds</span></label>
      <label class="field" title="The smallest difference of scores that matters: a score, or a share of the range"><span>margin</span><input class="mono" size="5" placeholder="1%" value=${margin} onChange=${(e) => setQuery({ margin: e.target.value.trim() })} /></label><span class="grow"></span><${Axes} axes=${axes} /></div>
    ${(error || judged.error) && html`<p class="bad" role="alert">${error || judged.error}</p>`}
    ${by === "hand" && html`<${HandGroups} ids=${ids} query=${query} groups=${data.groups} />`}
    ${envs.map((env) => html`<${Curves} key=${env} env=${env} data=${data} about=${known.find((m) => m.name === metric)} ...${shared} />`)}
    <${Multiples} query=${query} metrics=${known} isMany=${ids.length > FEW} envs=${envs} ...${shared} />
    ${judged.data ? html`<${Scores} data=${{ ...judged.data, groups }} />` : html`<section class="panel block"><div class="body quiet" role="status">Computing the scores and verdicts of ${count(groups.length)} ${groups.length === 1 ? "group" : "groups"}…</div></section>`}
    <${ScatterPanel} ids=${ids} query=${query} groups=${groups} curves=${data.curves} fields=${fields} metrics=${known} />
    ${comparison && envs.map((env) => html`<${FieldTable} key=${env} env=${envs.length > 1 ? env : ""} comparison=${comparison} groups=${groups.filter((g) => g.env_id === env)} />`)}
    <${AllFields} ids=${ids} />
    <${Differences} title="Machines and versions that differ" rows=${comparison?.machines ?? {}} groups=${comparison?.groups ?? []} none="All runs were made on the same kind of machine with the same versions." />
  </article>`;
}

/** Labels without what is the same in all of them: "policy_lr=0.001" where the rest is equal. */
function shorten(groups) {
  const parts = groups.map((g) => /^(.*?) \((.*)\)$/.exec(g.label));
  if (groups.length < 2 || parts.some((p) => !p) || new Set(parts.map((p) => p[1])).size > 1) return;
  groups.forEach((g, i) => { g.short = parts[i][2]; });
}

/** Metrics as a list in groups, by the names that people use. */
function MetricChoice({ metric, metrics }) {
  const all = metrics.some((m) => m.name === metric) ? metrics : [...metrics, { name: metric, label: "", group: "" }];
  const sections = Object.entries(Object.groupBy ? Object.groupBy(all, (m) => m.group || "other") : groupBy(all));
  return html`<label class="field"><span>metric</span><select class="metric-input" value=${metric} title=${all.find((m) => m.name === metric)?.description ?? ""} onChange=${(e) => setQuery({ metric: e.target.value === VAL ? "" : e.target.value })}>
    ${sections.map(([group, list]) => html`<optgroup key=${group} label=${group}>${list.map((m) => html`<option key=${m.name} value=${m.name} title=${m.description} selected=${m.name === metric}>${m.label || m.name}</option>`)}</optgroup>`)}</select></label>`;
}

const groupBy = (list) => list.reduce((found, m) => { (found[m.group || "other"] ??= []).push(m); return found; }, {});

/** Fields that do not make another group: a larger budget is the same experiment to many. */
function Ignored({ fields, ignored }) {
  const offered = [...new Set([...ignored, ...(fields.includes("max_env_steps") ? ["max_env_steps"] : [])])];
  const toggle = (name) => setQuery({ ignore: (ignored.includes(name) ? ignored.filter((n) => n !== name) : [...ignored, name]).join(",") });
  return offered.map((name) => html`<label key=${name} class="field" title=${`Runs that differ by ${name} alone are one group`}><input type="checkbox" checked=${ignored.includes(name)} onChange=${() => toggle(name)} /><span>ignore ${name}</span></label>`);
}

/** The lines of groups in a chart: seeds thin, the IQM thick with its band. */
function groupLines(groups, { curves, fewest_seeds: fewest }, { seeds, hidden, smooth, few = false }) {
  return groups.filter((g) => !hidden.has(g.label)).flatMap((group) => {
    const { lines, center } = curves[group.i];
    const known = lines.filter((line) => line.x.length || line.bad.length);
    const none = center && group.n >= fewest ? center.x.map(() => null) : undefined;  // until the interval arrives
    const main = center && { key: `iqm ${group.label}`, label: `${group.short} (IQM, n = ${group.n})`, colour: group.i, x: center.x, y: center.y, lo: center.lo ?? none, hi: center.hi ?? none, n: center.n, of: known.length, width: few ? 1.75 : 2.25 };
    const own = known.flatMap((line) => {
      const isAlone = !main;
      const base = { key: line.run, label: isAlone && group.n < 2 ? group.short : `${group.short}, seed ${line.seed ?? "–"}`, colour: group.i, x: line.x, bad: line.bad, ends: true };
      if (isAlone) return smooth && line.smooth ? [{ ...base, key: `${line.run}/raw`, y: line.y, faint: true, width: 1 }, { ...base, y: line.smooth }] : [{ ...base, y: line.y, width: 1.75 }];
      return seeds || line.bad.length ? [{ ...base, y: line.y, faint: true, width: 1 }] : [];
    });
    return main ? [...own, main] : own;
  });
}

/** What a reader must know about seeds that ended early. */
function earlyNote(groups, curves) {
  const isShort = (group) => { const { center } = curves[group.i]; return center && center.n.at(-1) < center.n[0]; };
  const early = groups.filter(isShort);
  if (!early.length) return "";
  const n = early.reduce((sum, group) => sum + curves[group.i].center.n[0] - curves[group.i].center.n.at(-1), 0);
  return ` ${n} ${n === 1 ? "seed" : "seeds"} reached the goal and stopped early: the thick line keeps ${n === 1 ? "its" : "their"} last value, and the tooltip says how many still train.`;
}

/** One chart an environment: returns of different environments have no common axis. */
function Curves({ env, data, about, groups: every, axes, seeds, hidden, setHidden }) {
  const plot = useRef(null);
  const groups = every.filter((g) => g.env_id === env);
  const lines = useMemo(() => groupLines(groups, data, { seeds, hidden, smooth: axes.smooth }), [data, seeds, hidden]);
  const level = data.metric.includes("ep_rew/mean") ? groups.find((g) => g.threshold !== null)?.threshold ?? null : null;
  const facts = { title: `${env} ${data.metric}`, xLabel: X_LABEL[axes.x], level };
  const few = groups.some((g) => g.n < data.fewest_seeds);
  const csv = () => saveCsv(facts.title, ["group", "run", "seed", axes.x, "value", "low", "high", "n"], groups.flatMap((g) => {
    const { lines: own, center } = data.curves[g.i];
    return [...(center ? center.x.map((x, i) => [g.label, "IQM", "", x, center.y[i], center.lo?.[i], center.hi?.[i], center.n[i]]) : []), ...own.flatMap((line) => line.x.map((x, i) => [g.label, line.run, line.seed, x, line.y[i], "", "", 1]))];
  }));
  const toggle = (label) => { const next = new Set(hidden); if (next.has(label)) next.delete(label); else next.add(label); setHidden(next); };
  const bad = groups.flatMap((g) => data.curves[g.i].lines.filter((line) => line.bad.length).map((line) => `seed ${line.seed ?? "–"} of ${g.short} from ${short(line.bad.at(-1))} on`));
  return html`<section class="panel block"><header><h2>${env}</h2><span title=${`${data.metric}: ${about?.description ?? ""}`}>${about?.label || data.metric}</span><span class="grow"></span>${data.n_bands < data.due && html`<span class="quiet" role="status">intervals: ${data.n_bands} of ${data.due} groups</span>`}<span class="quiet">Save as</span>
      <span class="seg"><button class="small" onClick=${() => attempt(() => savePng(plot.current, lines, facts))}>PNG</button><button class="small" onClick=${() => saveSvg(plot.current, lines, facts)}>SVG</button><button class="small" onClick=${csv}>CSV</button></span></header>
    <div class="body">${lines.length ? html`<${Chart} label=${`${data.metric} in ${env}`} lines=${lines} level=${level} height=${340} logX=${axes.logX} logY=${axes.logY} xLabel=${X_LABEL[axes.x]} onPlot=${(u) => { plot.current = u; }} />` : html`<p class="empty">No run has logged ${data.metric}.</p>`}
      <${Legend} items=${groups.map((g) => ({ key: g.label, label: data.by === "run" ? g.short : `${g.short}  n = ${g.n}`, title: g.label, colour: g.i }))} hidden=${hidden} onToggle=${toggle} />
      ${bad.length > 0 && html`<p class="bad">NaN or infinite: ${bad.slice(0, 5).join("; ")}${bad.length > 5 ? ` and ${bad.length - 5} more` : ""}.</p>`}
      <p class="quiet about">Thick lines: interquartile mean over seeds; bands: 95 % interval over seeds${few ? `, from ${data.fewest_seeds} seeds on` : ""}. Thin lines: single seeds${axes.smooth ? "; raw values where the line is smoothed" : ""}.${earlyNote(groups, data.curves)}</p></div></section>`;
}

// --- small multiples

/** Further metrics of the groups of one environment. */
function Multiples({ query, metrics, isMany, envs, ...shared }) {
  const [isOpen, setOpen] = useState(false);
  const given = query.get("panels");
  const names = given === null ? (isMany ? [] : keyMetrics(metrics.map((m) => m.name)).filter((name) => name !== (query.get("metric") ?? VAL))) : given.split(",").filter(Boolean);
  const byName = new Map(metrics.map((m) => [m.name, m]));
  if (!metrics.length) return null;
  const set = (next) => setQuery({ panels: next.join(",") || " " });
  const env = envs.includes(query.get("env")) ? query.get("env") : envs[0];
  return html`<section class="multiples"><div class="row toolbar"><h2>More metrics</h2><button class="small" onClick=${() => setOpen(true)}>Choose…</button>${isMany && given === null && html`<button class="small" onClick=${() => set(keyMetrics(byName.keys()))}>Show the key metrics</button>`}${envs.length > 1 && html`<${Select} label="environment" value=${env} options=${envs.map((one) => [one, one])} onChange=${(one) => setQuery({ env: one })} />`}<span class="grow"></span><${ColumnsChoice} /></div>
    ${names.length > 0 && html`<${PanelGroup} name="Metrics of the groups" count=${names.length}>${names.map((name) => html`<${Multiple} key=${name} metric=${byName.get(name) ?? { name, label: "", description: "" }} env=${env} ...${shared} />`)}<//>`}
    ${isOpen && html`<${ChooseMetrics} metrics=${metrics} chosen=${names} onClose=${() => setOpen(false)} onChange=${set} />`}</section>`;
}

function Multiple({ metric, env, groups, grouping, axes, seeds, hidden, version }) {
  const ref = useRef(null);
  const seen = useSeen(ref);
  const { data, error } = useCurves(grouping, metric.name, axes, version, seen);
  const lines = useMemo(() => (data && data.curves.length === groups.length ? groupLines(groups.filter((g) => g.env_id === env), data, { seeds, hidden, smooth: axes.smooth, few: true }) : []), [data, env, seeds, hidden]);
  return html`<section class="panel metric" ref=${ref} data-metric=${metric.name}><${Panel} metric=${metric} lines=${lines} axes=${axes} xLabel=${X_LABEL[axes.x]} syncKey="compare" error=${error} isLoaded=${data !== null} /></section>`;
}

function ChooseMetrics({ metrics, chosen, onClose, onChange }) {
  const [text, setText] = useState("");
  const words = text.trim().toLowerCase();
  const shown = metrics.filter((m) => `${m.name} ${m.label} ${m.description}`.toLowerCase().includes(words));
  const toggle = (name) => onChange(chosen.includes(name) ? chosen.filter((n) => n !== name) : [...chosen, name]);
  return html`<${Dialog} title="Metrics to show" onClose=${onClose}><input type="search" value=${text} placeholder="Search names and descriptions" aria-label="Search the metrics" onInput=${(e) => setText(e.target.value)} />
    <div class="metric-choices" tabindex="0">${Object.entries(groupBy(shown)).map(([group, list]) => html`<section key=${group}><h3 class="quiet">${group}</h3>${list.map((m) => html`<label key=${m.name} title=${m.name}><input type="checkbox" checked=${chosen.includes(m.name)} onChange=${() => toggle(m.name)} /><b>${m.label || m.name}</b><span class="quiet">${m.description}</span></label>`)}</section>`)}</div><//>`;
}

// --- scatter

const RESULTS = [["test", "test score"], ["val", "best validation"], ["steps", "env steps"], ["time", "time"], ["seed", "seed"]];

function ScatterPanel({ ids, query, groups, curves, fields, metrics }) {
  const isOpen = query.get("sx") !== null;
  const x = query.get("sx") || fields[0] || "steps", y = query.get("sy") ?? "test";
  const { data, error } = useAnswer(async (take) => take((await get("scatter", { runs: ids, x, y })).points), JSON.stringify([ids, x, y]), 0, isOpen);
  const groupOf = new Map(groups.flatMap((g) => curves[g.i].lines.map((line) => [line.run, g])));
  const labelOf = (name) => RESULTS.find(([key]) => key === name)?.[1] ?? metrics.find((m) => m.name === name)?.label ?? name;
  const options = [...RESULTS, ...fields.map((f) => [f, f]), ...keyMetrics(metrics.map((m) => m.name)).map((name) => [name, `${labelOf(name)} at the end`])];
  const choices = (current) => (options.some(([key]) => key === current) ? options : [...options, [current, current]]);
  const points = (data ?? []).filter(([, a, b]) => a !== null && b !== null).map(([id, a, b]) => ({ x: a, y: b, colour: groupOf.get(id)?.i ?? 0, onClick: () => go(`runs/${encodeURIComponent(id)}`),
    label: `${groupOf.get(id)?.short ?? ""} ${shortId(id)}: ${value(a)}, ${value(b)}` }));
  const xs = points.map((p) => p.x);
  const isWide = points.length > 0 && Math.min(...xs) > 0 && Math.max(...xs) / Math.min(...xs) > 50;  // reads better as a log axis
  return html`<details class="panel block" open=${isOpen} onToggle=${(event) => { if (event.target.open !== isOpen) setQuery({ sx: event.target.open ? x : "", sy: "" }); }}><summary class="body"><h2 class="inline">Scatter of the runs</h2> <span class="quiet">any two columns</span></summary>
    ${isOpen && html`<div class="body"><div class="row"><${Select} label="x" value=${x} options=${choices(x)} onChange=${(v) => setQuery({ sx: v })} /><${Select} label="y" value=${y} options=${choices(y)} onChange=${(v) => setQuery({ sy: v === "test" ? "" : v })} /><span class="quiet">${points.length} of ${ids.length} runs have both</span></div>
      ${error && html`<p class="bad" role="alert">${error}</p>`}${data && html`<${Scatter} points=${points} xKind=${isWide ? "log" : "linear"} xLabel=${labelOf(x)} yLabel=${labelOf(y)} label=${`${labelOf(y)} over ${labelOf(x)}`} />`}</div>`}</details>`;
}

/** The fields that differ among the groups of one environment. */
function FieldTable({ env, comparison, groups }) {
  const own = comparison.groups.map((g, i) => ({ ...g, i })).filter((g) => groups.some((known) => known.label === g.label && known.env_id === g.env_id));
  const rows = Object.fromEntries(Object.entries(comparison.differences).map(([name, values]) => [name, own.map((g) => values[g.i])]).filter(([, values]) => new Set(values.map((v) => JSON.stringify(v))).size > 1));
  return html`<${Differences} title=${env ? `Config fields that differ in ${env}` : "Config fields that differ"} rows=${rows} groups=${own.map((g) => ({ ...g, label: groups.find((known) => known.label === g.label)?.short ?? g.label }))} none=${own.length > 1 ? "All groups have the same config." : "There is only one group with a score."} />`;
}

// --- scores

const estimate = (e) => (e === null || e.value === null ? "–" : html`<b>${value(e.value)}</b>${e.low !== null && html` <span class="quiet">[${value(e.low)}, ${value(e.high)}]</span>`}`);

function Scores({ data }) {
  const c = data.comparison;
  if (!c) return html`<section class="panel block"><div class="body quiet">No run here has been evaluated yet.</div></section>`;
  const verdicts = new Map(c.verdicts.map((v) => [v.first, v]));
  const index = new Map(data.groups.map((g, i) => [g.label, i]));
  const several = new Set(data.groups.map((g) => g.env_id)).size > 1;
  const shortOf = new Map(data.groups.map((g) => [`${g.env_id} ${g.label}`, several ? g.label : g.short]));
  const range = spans(c.groups);
  return html`<section class="panel block"><header><h2>Scores</h2><span class="quiet">held-out tests; the unit is the seed</span></header><div class="body scroll" tabindex="0"><table class="scores"><thead><tr><th>group</th><th class="num">seeds</th><th class="num">IQM [95 %]</th><th class="interval-head"><span class="visually-hidden">interval</span></th><th class="num">mean</th><th class="num">solved</th><th class="num">solved after</th><th class="num">time</th><th>verdict</th></tr></thead>
    <tbody>${c.groups.map((g) => html`<tr key=${`${g.env_id} ${g.label}`}><td title=${g.label}><i class="swatch" style=${{ background: colourVar(index.get(g.label) ?? 0) }}></i>${shortOf.get(`${g.env_id} ${g.label}`) ?? g.label}</td><td class="num" title=${g.seeds.join(", ")}>${g.scores.length}</td><td class="num">${estimate(g.iqm)}${g.n_untested ? "*" : ""}</td>
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
  return html`<section class="panel block"><header><h2>${title}</h2><span class="quiet">${names.length || ""}</span></header><div class="body scroll" tabindex="0">${names.length === 0 ? html`<p class="quiet">${none}</p>` : html`<table><thead><tr><th>field</th>${groups.map((g, i) => html`<th key=${i}>${g.label}</th>`)}</tr></thead><tbody>${names.map((name) => html`<tr key=${name}><td class="mono">${name}</td>${rows[name].map((v, i) => html`<td key=${i} class="mono">${configText(v)}</td>`)}</tr>`)}</tbody></table>`}</div></section>`;
}

/** All fields of the single runs, fetched when opened. */
function AllFields({ ids }) {
  const [data, setData] = useState(null);
  const open = (event) => { if (event.target.open && !data) attempt(async () => setData(await get("diff", { runs: ids.slice(0, 20) }))); };
  return html`<details class="panel block" onToggle=${open}><summary class="body"><h2 class="inline">Fields of the single runs</h2> <span class="quiet">those that differ first${ids.length > 20 ? "; the first 20 runs" : ""}</span></summary>
    <div class="body scroll" tabindex="0">${data && html`<table><thead><tr><th>field</th>${data.runs.map((id) => html`<th key=${id} class="mono"><a href=${href(`runs/${encodeURIComponent(id)}`)}>${shortId(id)}</a></th>`)}</tr></thead><tbody>${data.fields.filter((f) => f.path !== "spec").map((f) => html`<tr key=${f.path} class=${f.same ? "quiet" : ""}><td class="mono">${f.path}</td>${f.same ? html`<td class="mono" colspan=${data.runs.length}>${configText(f.values[0])}</td>` : f.values.map((v, i) => html`<td key=${i} class="mono">${configText(v)}</td>`)}</tr>`)}</tbody></table>`}</div></details>`;
}
