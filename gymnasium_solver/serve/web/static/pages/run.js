// One run: verdict, curves with alerts and checkpoints as marks, evaluations, config, log, videos.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { canWrite, get, post } from "../lib/api.js";
import { ago, count, seconds, short, value } from "../lib/format.js";
import { Status, Tag, attempt, stopWords, throttled, useKeys } from "../lib/parts.js";
import { go, href, setQuery } from "../lib/router.js";
import { useClock } from "../lib/repeated.js";
import { elapsed, phase } from "../lib/runs-store.js";
import { follow } from "../lib/stream.js";
import { Markdown } from "../lib/markdown.js";
import { Axes, MetricPanels, ReturnChart, Usage, editText } from "./run-charts.js";
import { axesOf } from "../lib/early.js";
import { Checkpoints, Config, Evaluations, Log, Machine, NewestVideo, Size, Videos } from "./run-parts.js";
import { Actions, startHref } from "./run-actions.js";
import { Spread } from "./run-spread.js";

const TABS = [["overview", "Overview"], ["curves", "Curves"], ["spread", "Distributions"], ["evaluations", "Evaluations"], ["config", "Config"], ["log", "Log"], ["videos", "Videos"], ["machine", "Machine"]];

export default function RunPage({ params, query }) {
  const id = params.run;
  const tab = query.get("tab") ?? "overview";
  const [detail, setDetail] = useState(null);
  const [error, setError] = useState("");
  const [version, setVersion] = useState(0);
  const log = useRef({ text: "", cursor: "" });
  const [, redrawLog] = useState(0);
  const head = useRef(null);
  const [isScrolled, setScrolled] = useState(false);

  const load = useMemo(() => throttled(async () => {
    try { setDetail(await get(`runs/${encodeURIComponent(id)}`)); setError(""); } catch (e) { setError(e.message); }
  }, 700), [id]);
  useEffect(() => { load(); }, [id]);
  useEffect(() => {
    const draw = throttled(() => setVersion((v) => v + 1), 250);
    const reload = () => load();
    return follow(() => ({ watch: id, log: id, log_cursor: log.current.cursor }), {
      metrics: () => { draw(); reload(); }, events: reload, meta: reload,
      log: (told) => {
        log.current = { text: (told.reset ? "" : log.current.text) + told.text, cursor: told.cursor };
        if (log.current.text.length > 1_500_000) log.current.text = log.current.text.slice(-1_000_000);
        redrawLog((n) => n + 1);
      },
    });
  }, [id]);
  useEffect(() => {
    if (!head.current) return undefined;
    const observer = new IntersectionObserver(([entry]) => setScrolled(!entry.isIntersecting), { rootMargin: "-48px 0px 0px 0px" });
    observer.observe(head.current);
    return () => observer.disconnect();
  }, [detail === null]);
  const turn = (step) => {
    const at = TABS.findIndex(([key]) => key === tab);
    setQuery({ tab: TABS[(at + step + TABS.length) % TABS.length][0] });
  };
  useKeys({ "]": () => turn(1), "[": () => turn(-1), u: () => go("/") }, [["[ ]", "previous, next tab"], ["u", "back to all runs"]]);

  if (error && !detail) return html`<section class="empty" role="alert"><h1>${id}</h1><p>${error}</p><p><a href=${href("/")}>All runs</a></p></section>`;
  if (!detail) return html`<p class="boot">Loading…</p>`;
  const run = flat(detail.summary);
  const axes = axesOf(query);
  const tabs = TABS.filter(([key]) => key !== "videos" || detail.videos.length > 0 || tab === "videos");
  return html`<article class="run-page" data-status=${run.status} data-version=${version}>
    <header class="run-head" ref=${head}>
      <div class="row"><h1>${run.status === "broken" ? run.id : `${run.env_id}:${run.variant ?? run.algo_id}`}</h1><span class="badge"><${Status} run=${run} /></span><span class="grow"></span>
        <${Actions} id=${run.id} detail=${detail} run=${run} reload=${load} /></div>
      <div class="row quiet"><code class="anywhere">${run.id}</code><span>seed ${run.seed ?? "–"}</span><span title=${run.created_at}>started ${ago(run.created_at)}</span>
        <${Labels} run=${run} note=${detail.note} reload=${load} /></div>
      ${detail.config?.description && html`<p class="quiet">${detail.config.description}</p>`}
      ${detail.note && html`<${Markdown} text=${detail.note} />`}
    </header>
    <${Facts} run=${run} detail=${detail} />
    ${isScrolled && html`<div class="run-line" aria-hidden="true"><b>${run.env_id}:${run.variant ?? run.algo_id}</b><${Status} run=${run} />${factsOf(run, detail).slice(0, 5).map(([what, text, more]) => html`<span key=${what} title=${more}><span class="quiet">${what}</span> ${text}</span>`)}</div>`}
    <div class="tabs" role="tablist" aria-label="Parts of the run">${tabs.map(([key, text]) => html`<button key=${key} role="tab" id=${`tab-${key}`} aria-controls="tab-panel" aria-selected=${tab === key} tabindex=${tab === key ? 0 : -1} onClick=${() => setQuery({ tab: key === "overview" ? "" : key })}
        onKeyDown=${(event) => { if (event.key === "ArrowRight") turn(1); if (event.key === "ArrowLeft") turn(-1); }}>${text}${badge(key, detail)}</button>`)}</div>
    <div id="tab-panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>
      ${tab === "overview" && html`<${Overview} run=${run} detail=${detail} axes=${axes} version=${version} log=${log.current.text} />`}
      ${tab === "curves" && html`<${MetricPanels} run=${run} detail=${detail} axes=${axes} version=${version} />`}
      ${tab === "spread" && html`<${Spread} run=${run} detail=${detail} axes=${axes} version=${version} />`}
      ${tab === "evaluations" && html`<${Evaluations} detail=${detail} run=${run} />`}
      ${tab === "config" && html`<${Config} detail=${detail} />`}
      ${tab === "log" && html`<${Log} text=${log.current.text} />`}
      ${tab === "videos" && html`<${Videos} detail=${detail} id=${run.id} run=${run} />`}
      ${tab === "machine" && html`<${Machine} detail=${detail} />`}
    </div></article>`;
}

/** The summary with the fields that the table of runs has. */
const flat = (s) => ({ ...s, score: s.test?.mean ?? null, stderr: s.test?.stderr ?? null });

const badge = (key, detail) => {
  const n = { evaluations: detail.evaluations.length, videos: detail.videos.length, config: Object.keys(detail.changed ?? {}).length }[key];
  return n ? html` <span class="quiet">${n}</span>` : null;
};

function Labels({ run, note, reload }) {
  const [editing, setEditing] = useState(false);
  const change = (body) => attempt(() => post("runs/tags", { runs: [run.id], ...body })).then(reload);
  const save = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const tags = form.get("tags").split(/[\s,]+/).filter(Boolean);
    attempt(async () => {
      if (tags.length) await post("runs/tags", { runs: [run.id], add: tags });
      await post("runs/note", { run: run.id, note: form.get("note") });
    }, "saved").then(() => { setEditing(false); reload(); });
  };
  if (editing) return html`<form class="labels-form" onSubmit=${save}><input name="tags" placeholder="new tags" aria-label="New tags" size="14" /><textarea name="note" rows="4" placeholder="A note in Markdown" aria-label="Note">${note}</textarea><span class="row"><button class="primary small">Save</button><button type="button" class="small" onClick=${() => setEditing(false)}>Cancel</button></span></form>`;
  return html`${run.tags.map((tag) => html`<${Tag} key=${tag} text=${tag} onRemove=${canWrite() ? () => change({ remove: [tag] }) : null} />`)}
    ${canWrite() && html`<button class="plain small" onClick=${() => setEditing(true)}>${note || run.tags.length ? "edit" : "+ tag, note"}</button>`}`;
}

/** Whether the threshold was reached: only a held-out test can tell. */
const reached = (run) => (run.threshold === null ? "" : run.test ? (run.solved ? "reached" : "not reached")
  : run.best && run.best.score >= run.threshold ? "reached at a validation; not tested yet" : "not tested yet");

/** [what, value, more] of the numbers that are shown first. */
function factsOf(run, detail, now) {
  const share = run.max_env_steps ? run.env_steps / run.max_env_steps : null;
  const fps = run.wall_s ? run.env_steps / run.wall_s : null;
  const left = run.status === "running" && share && share > 0 && share < 1 ? (run.wall_s * (1 - share)) / share : null;
  const why = detail.result.find(([what]) => what === "stopped because")?.[1] ?? "";
  return [
    ["test", run.test ? html`<b>${value(run.test.mean)}</b>${run.stderr !== null && html` <small>± ${Number(run.stderr.toPrecision(2))}</small>`}` : "not tested", run.test ? `${count(run.test.episodes)} held-out episodes, ${run.test.greedy ? "greedy" : "sampled"}` : run.status === "running" ? "tested at the end" : ""],
    ["solved at", run.threshold === null ? "no threshold" : value(run.threshold), reached(run)],
    ["best validation", run.best ? value(run.best.score) : "–", run.best ? `at ${short(run.best.env_steps)} env steps` : ""],
    ["env steps", short(run.env_steps), run.max_env_steps ? `of ${short(run.max_env_steps)} (${Math.round(100 * share)} %)` : ""],
    ["time", seconds(elapsed(run, now)), left ? `about ${seconds(left)} left` : fps ? `${short(fps)} steps/s` : ""],
    run.stop_reason ? ["ended", stopWords(run), why] : ["status", phase(run) || run.status, run.status === "running" ? `epoch ${count(run.epoch)}` : ""],
  ];
}

function Facts({ run, detail }) {
  const now = useClock(run.status === "running");
  return html`<dl class="facts">${factsOf(run, detail, now).map(([what, text, more]) => html`<div key=${what}><dt>${what}</dt><dd>${text}</dd><dd class="more" title=${more}>${more}</dd></div>`)}</dl>
    ${detail.why && html`<p class="hint">${detail.why}</p>`}`;
}

function Alerts({ run, detail, open }) {
  if (!detail.alerts.length) return null;
  return html`<section class="panel alerts-panel"><header><h2>Alerts</h2><span class="quiet">${detail.alerts.length}</span></header>
    <div class="body alerts">${detail.alerts.map((alert) => html`<details key=${alert.name} open=${open === alert.name || alert.is_active}><summary class=${alert.is_active ? "bad" : ""}><b>${alert.name}</b> <span class="quiet">${alert.is_active ? `since ${short(alert.first_env_steps)}` : `${short(alert.first_env_steps)} to ${short(alert.last_env_steps)}`}${alert.times > 1 ? `, ${alert.times} times` : ""}</span></summary>
      <p>${alert.text}</p><p class="quiet">${alert.meaning}</p><p><b>Try:</b> ${alert.advice}</p>
      ${canWrite() && (alert.changes ?? []).length > 0 && html`<p class="row">${alert.changes.map((change) => { const words = Object.entries(change).map(([name, text]) => `${name} ${text}`).join(", "); return html`<a key=${words} class="button small" href=${startHref(run.id, change)} title=${`Start again with ${words}`}>Start with ${words}</a>`; })}</p>`}</details>`)}</div></section>`;
}

function Overview({ run, detail, axes, version, log }) {
  const [open, setOpen] = useState(null);
  const tail = log.trimEnd().split("\n").slice(-8).join("\n");
  return html`<div class="overview">
    <${Alerts} run=${run} detail=${detail} open=${open} />
    <section class="panel return-panel"><header><h2>Return</h2><span class="grow"></span><${Axes} axes=${axes} /></header>
      <div class="body"><${ReturnChart} run=${run} detail=${detail} axes=${axes} version=${version} onMark=${(mark) => (mark.kind === "alert" ? setOpen(mark.name) : mark.kind === "edit" ? setQuery({ tab: "config" }) : mark.kind === "checkpoint" ? go(`/inspect/${encodeURIComponent(run.id)}`, { checkpoint: mark.name }) : setQuery({ tab: "evaluations" }))} /></div></section>
    <div class="masonry">
      <section class="panel"><header><h2>Checkpoints</h2></header><div class="body"><${Checkpoints} run=${run} /></div></section>
      <${NewestVideo} detail=${detail} run=${run} />
      <${Usage} run=${run} detail=${detail} axes=${axes} version=${version} />
      ${detail.changes.length > 0 && html`<section class="panel" data-part="edits"><header><h2>Changed while it trained</h2></header><div class="body"><ul class="plain-list">${detail.changes.map((edit, i) => html`<li key=${i} class=${edit.kind === "config_refused" ? "bad" : ""}><span class="quiet">at ${short(edit.env_steps)}</span> ${edit.kind === "config_refused" ? `refused: ${edit.text}` : editText(edit)} <span class="quiet">${edit.source ?? ""}</span></li>`)}</ul></div></section>`}
      <section class="panel"><header><h2>Changed from the shipped config</h2></header><div class="body"><${Config} detail=${detail} onlyChanged=${true} /></div></section>
      ${detail.alerts.length === 0 && html`<section class="panel"><header><h2>Alerts</h2><span class="quiet">none</span></header><div class="body quiet">No rule found anything wrong.</div></section>`}
      <section class="panel"><header><h2>Console</h2><span class="grow"></span><button class="plain small" onClick=${() => setQuery({ tab: "log" })}>whole log</button></header><div class="body"><pre class="scroll log-tail" tabindex="0" role="region" aria-label="End of the log">${tail || "nothing yet"}</pre></div></section>
      <section class="panel"><header><h2>Next</h2></header><div class="body"><pre class="scroll" tabindex="0">${detail.commands.join("\n")}</pre></div></section>
      <${Size} id=${run.id} />
    </div></div>`;
}
