// The inspector: pick, play, scrub, branch and compare episodes of a run. The episode itself is drawn
// by inspect/view.js; this page has the pickers, the strip of episodes and the dialogs.
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import { apiUrl, canWrite } from "../lib/api.js";
import { ago, count, value } from "../lib/format.js";
import { Dialog, Select, Status, attempt, helpOpen, pageKeys, throttled, toast } from "../lib/parts.js";
import { Menu } from "../lib/menu.js";
import { go, href, setQuery } from "../lib/router.js";
import { h } from "../inspect/charts.js";
import { EpisodeView, bindKeys, clockKeys } from "../inspect/view.js";
import { askWhy, csvUrl, deleteEpisode, difference, followEpisode, frameUrl, listEpisodes, listInspected, openEpisode, pageUrl, playEpisode, playerPhase, stopEpisode } from "../inspect/remote.js";

const METHODS = ["gradcam", "gradcam++", "xgradcam", "layercam", "hirescam", "scorecam", "eigencam", "gradient", "occlusion"];
const KEYS = [
  ["Space", "play, pause"], ["← →", "one step; with Shift 10"], ["Home End", "first, last step"], ["[ ]", "slower, faster"],
  [", .", "previous, next notable step"], ["b", "branch from this step"], ["1 … 9", "branch with this action"],
  ["c", "compare with another checkpoint"], ["s", "saliency of the decision"],
];

export default function Inspect({ params, query }) {
  if (!params.run) return html`<${PickRun} />`;
  return html`<${Inspector} run=${params.run} query=${query} />`;
}

/** Without a run in the address: the newest ones that have a checkpoint. */
function PickRun() {
  const [runs, setRuns] = useState(null);
  const [failed, setFailed] = useState("");
  const [text, setText] = useState("");
  useEffect(() => { listInspected().then((found) => setRuns(found.runs), (error) => setFailed(error.message)); }, []);
  if (failed) return html`<section class="empty" role="alert"><p>${failed}</p></section>`;
  if (!runs) return html`<p class="boot">Loading…</p>`;
  if (!runs.length) return html`<section class="empty"><h1>Inspect</h1><p>No run has a checkpoint yet. <code>gsolve train CartPole-v1:ppo</code> makes one.</p></section>`;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = runs.filter((run) => words.every((word) => `${run.name} ${run.id} ${run.status}`.toLowerCase().includes(word)));
  return html`<section class="panel in-pick"><header><h1>Inspect a run</h1><span class="quiet">${runs.length === 100 ? "the newest 100 with a checkpoint" : ""}</span><span class="grow"></span><input type="search" value=${text} placeholder="Search" aria-label="Search the runs" onInput=${(e) => setText(e.target.value)} /></header>
    <div class="body scroll" tabindex="0"><table><thead><tr><th><span class="visually-hidden">frame</span></th><th>run</th><th>status</th><th class="num">test</th><th class="num">best validation</th><th class="num">env steps</th><th class="num">episodes</th><th class="num">started</th></tr></thead>
      <tbody>${shown.map((run) => html`<tr key=${run.id}><td class="in-thumb">${run.n_frames > 0 ? html`<img src=${frameUrl(run.id, run.episode, Math.floor((run.n_frames - 1) / 2))} alt="" loading="lazy" />` : html`<span class="in-noframe"></span>`}</td>
        <td><a href=${href(`/inspect/${encodeURIComponent(run.id)}`)}>${run.name}</a><br /><span class="quiet mono">${run.id}</span></td><td><${Status} run=${run} /></td><td class="num">${value(run.test)}</td><td class="num">${value(run.best_score)}</td><td class="num">${count(run.env_steps)}</td>
        <td class="num" title=${run.return === null ? "" : `newest: ${value(run.return)}`}>${run.n_episodes || "–"}</td><td class="num quiet" title=${run.created_at}>${ago(run.created_at)}</td></tr>`)}</tbody></table>
    ${shown.length === 0 && html`<p class="quiet">No run matches.</p>`}</div></section>`;
}

function Inspector({ run, query }) {
  const [list, setList] = useState(null);
  const [failed, setFailed] = useState("");
  const [dialog, setDialog] = useState(null);
  const [phase, setPhase] = useState("");
  const views = useRef({});
  const episode = query.get("episode");
  const other = query.get("with");
  const reload = () => listEpisodes(run).then((found) => { setList(found); return found; }, (error) => setFailed(error.message));

  useEffect(() => {
    reload().then((found) => {
      const wanted = query.get("checkpoint");
      if (query.get("worst")) return;
      const one = found?.episodes.find((each) => !wanted || String(each.env_steps) === wanted);
      if (!episode && one) setQuery({ episode: one.id });
    });
  }, [run]);
  useKeysOf(views, list, setDialog);

  /** Play an episode and show it; asks first where the run names code of a stranger. */
  async function play(wanted, { compare = false } = {}) {
    const { branch } = wanted;
    setPhase("starting");
    const timer = setInterval(() => playerPhase().then((told) => setPhase(told || "starting"), () => {}), 400);
    try {
      const { episode: id } = await playEpisode(run, wanted);
      setDialog(null);
      await reload();
      if (compare) setQuery({ with: id }, { replace: false });
      else if (branch) go(`/inspect/${encodeURIComponent(run)}`, { episode: id, with: branch.of, t: branch.at || "" });
      else go(`/inspect/${encodeURIComponent(run)}`, { episode: id, play: 1 });
      return true;
    } catch (error) {
      if (error.status === 409) setDialog({ kind: "trust", text: error.message, again: () => play({ ...wanted, trust: true }, { compare }) });
      else toast(error.message, "bad");
      return false;
    } finally {
      clearInterval(timer);
      setPhase("");
    }
  }
  // An evaluation that leads here names its checkpoint and seed: the worst of some episodes is played.
  useEffect(() => {
    const n = Number(query.get("worst"));
    if (!list || !n || !canWrite()) return;
    const [checkpoint, seed, greedy] = ["checkpoint", "seed", "greedy"].map((name) => query.get(name));
    setQuery({ worst: "", seed: "", greedy: "", checkpoint: "", episode: "" });
    play({ ...(checkpoint ? { checkpoint } : {}), seed: seed ? Number(seed) : "test", greedy: greedy ? greedy === "1" : null, worst_of: n });
  }, [list !== null]);

  if (failed) return html`<section class="empty" role="alert"><h1>Inspect</h1><p>${failed}</p><a href=${href("/inspect")}>Pick a run</a></section>`;
  if (!list) return html`<p class="boot">Loading…</p>`;
  const onDone = () => { reload(); };
  const letters = other ? ["A", "B"] : ["", ""];
  const one = (slot, id, letter) => html`<${One} key=${`${slot} ${id}`} slot=${slot} letter=${letter} run=${run} list=${list} id=${id} views=${views} query=${query} setDialog=${setDialog} onDone=${onDone} />`;
  return html`
    <div class="in-head"><h1><a href=${href(`/runs/${encodeURIComponent(run)}`)}>${list.name}</a></h1><span class="quiet mono in-id">${list.run}</span><span class="grow"></span>
      ${canWrite() && html`<${PlayForm} list=${list} play=${play} wanted=${query.get("checkpoint")} />`}</div>
    <${Strip} list=${list} run=${run} episode=${episode} other=${other} onDone=${onDone} />
    ${phase && html`<p class="in-phase" role="status"><span class="status running"><i>●</i></span>${phase}…</p>`}
    ${!episode && !phase && html`<section class="empty"><h2>No episodes yet</h2><p>Play one with the form above, or with <code>gsolve inspect ${list.run}</code>.</p></section>`}
    ${other && html`<${Difference} run=${run} a=${episode} b=${other} views=${views} />`}
    ${episode && html`<div class=${`in-views ${other ? "two" : ""}`}>${one("a", episode, letters[0])}${other && one("b", other, letters[1])}</div>`}
    ${dialog?.kind === "trust" && html`<${TrustDialog} dialog=${dialog} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "branch" && html`<${BranchDialog} dialog=${dialog} list=${list} play=${play} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "compare" && html`<${CompareDialog} dialog=${dialog} list=${list} play=${play} onClose=${() => setDialog(null)} />`}`;
}

function useKeysOf(views, list, setDialog) {
  const current = useRef({});
  current.current = { list, setDialog };
  useEffect(() => {
    pageKeys.value = KEYS;
    const view = () => views.current.a;
    const branch = (action) => view() && canWrite() && current.current.setDialog({ kind: "branch", view: view(), action });
    const digits = Object.fromEntries([..."123456789"].map((digit) => [digit, () => {
      const names = view()?.data.facts.action;
      if (names?.kind === "discrete" && Number(digit) <= names.leaves[0].n) branch(names.leaves[0].start + Number(digit) - 1);
    }]));
    const unbind = bindKeys(() => (view() ? {
      ...clockKeys(view), ...digits,
      b: () => branch(null),
      c: () => canWrite() && current.current.setDialog({ kind: "compare", view: view() }),
      s: () => view().toggleWhy?.(),
      "?": () => { helpOpen.value = true; },  // also while the slider has the focus
    } : {}));
    return () => { unbind(); pageKeys.value = []; };
  }, []);
}

// --- one episode

function One({ slot, letter, run, list, id, views, query, setDialog, onDone }) {
  const root = useRef(null);
  const [failed, setFailed] = useState("");
  useEffect(() => {
    let view = null;
    let unfollow = () => {};
    let isGone = false;
    const told = (name) => root.current?.dispatchEvent(new CustomEvent(name, { bubbles: true }));
    openEpisode(run, id).then(({ data, frames }) => {
      if (isGone) return;
      view = makeView(root.current, { run, id, slot, data, frames, views, setDialog });
      views.current = { ...views.current, [slot]: view };
      const { a, b } = views.current;
      if (a && b) a.setCompanion(b);
      const wanted = Number(query.get("t"));
      if (slot === "b" ? a : wanted) view.setStep(slot === "b" ? a.t : wanted);
      if (slot === "a" && query.get("play") && !matchMedia("(prefers-reduced-motion: reduce)").matches) view.play();
      told("episode-open");
      unfollow = followEpisode(run, id, data, (facts) => {
        const clock = views.current.a;
        view.refresh();
        if (clock && clock !== view) { clock.refresh(); view.setStep(clock.t); }
        if (slot === "a" && wanted && view.t < wanted && !view.isPlaying && !view.isMoved) view.setStep(wanted);
        told("episode-grew");
        if (facts.status !== "running") {
          if (facts.why) toast(facts.why, "bad");
          onDone();
          told("episode-open");
        }
      });
    }, (error) => setFailed(error.message));
    return () => {
      isGone = true;
      unfollow();
      view?.destroy();
      if (views.current[slot] === view) views.current = { ...views.current, [slot]: null };
      if (slot === "b") views.current.a?.setCompanion(null);
    };
  }, [run, id]);
  return html`<section class="in-one" aria-label=${`Episode ${id}`}>
    <${Title} id=${id} letter=${letter} facts=${list.episodes.find((each) => each.id === id)} run=${run} slot=${slot} views=${views} setDialog=${setDialog} onDone=${onDone} />
    ${failed && html`<p class="bad" role="alert">${failed}</p>`}
    <div ref=${root}></div></section>`;
}

/** "checkpoint 10,128, seed 7, greedy actions": what an id says, in words. */
function titleOf(facts) {
  if (!facts) return "";
  const branch = facts.parent ? `, branch at step ${facts.parent.step}` : "";
  return `checkpoint ${count(facts.env_steps)}, seed ${facts.seed}, ${facts.greedy ? "greedy" : "sampled"} actions${branch}`;
}

function Title({ id, letter, facts, run, slot, views, setDialog, onDone }) {
  const remove = () => attempt(async () => { await deleteEpisode(run, id); setQuery(slot === "a" ? { episode: "", with: "" } : { with: "" }); onDone(); }, "Episode deleted");
  return html`<div class="row in-title">${letter && html`<span class=${`in-letter ${slot}`}>${letter}</span>`}<h2 title=${id}>${titleOf(facts) || id}</h2><span class="grow"></span>
    ${slot === "a" && canWrite() && html`<button type="button" onClick=${() => setDialog({ kind: "branch", view: views.current.a, action: null })} title="Branch from this step (b)">Branch</button>
    <button type="button" onClick=${() => setDialog({ kind: "compare", view: views.current.a })} title="Compare with another checkpoint (c)">Compare</button>`}
    ${slot === "b" && html`<button type="button" onClick=${() => setQuery({ with: "" })}>Close</button>`}
    <${Menu} label="More" title="Save or delete this episode">
      <a href=${pageUrl(run, id)} download title="One file that plays without a server">Save as HTML</a>
      <a href=${csvUrl(run, id)} download=${`${id}.csv`}>Save as CSV</a>
      <a href=${apiUrl("report.html", { runs: [run], episodes: [id] })} download=${`${run}.html`} title="The report of the run with this episode in it">Report with this episode</a>
      ${canWrite() && html`<button type="button" class="danger" onClick=${remove}>Delete the episode</button>`}<//></div>`;
}

/** The view with its tools: saliency, CSV, and the clock that is locked to the other view. */
function makeView(root, { run, id, slot, data, frames, views, setDialog }) {
  const method = h("select", { "aria-label": "Method of the saliency" }, ...METHODS.map((name) => h("option", { value: name }, name)));
  const target = h("select", { "aria-label": "What is explained" }, h("option", { value: "action" }, "of the action"), h("option", { value: "value" }, "of the value"));
  const button = h("button", { type: "button", title: "Saliency of the decision (s)", "aria-pressed": "false", onclick: () => view.toggleWhy() }, "Saliency");
  const tools = canWrite() ? h("span", { class: "row" }, button, frames.has("net") ? method : "", target) : null;
  const csv = h("a", { class: "button", href: csvUrl(run, id), download: `${id}.csv` }, "CSV");
  let isOn = false;
  let shownBefore = "";
  let timer = 0;
  const view = new EpisodeView(root, data, frames, {
    tools, tableTools: csv, isGuest: slot === "b",
    onAction: canWrite() ? (action) => setDialog({ kind: "branch", view, action }) : null,
    onStep: (t) => {
      if (slot === "a" && views.current.a?.root === root) views.current.b?.setStep(t);  // one clock
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (slot === "a") history.replaceState(null, "", withStep(t));
        if (isOn && !view.isPlaying) ask();
      }, 150);
    },
  });
  async function ask(trust = false) {
    const t = view.own;
    if (t >= data.last) { view.whyText.textContent = "no decision in the last state"; return; }
    if (!view.why) view.whyText.textContent = "computing …";
    try {
      const why = await askWhy(run, id, { t, method: frames.has("net") ? method.value : "gradient", target: target.value, trust });
      if (isOn) await view.showWhy(why);
    } catch (error) {
      if (error.status === 409) setDialog({ kind: "trust", text: error.message, again: () => ask(true) });
      else { toast(error.message, "bad"); off(); }
    }
  }
  function off() { isOn = false; button.setAttribute("aria-pressed", "false"); view.clearWhy(); view.setView(shownBefore); }
  view.toggleWhy = () => {
    if (isOn) { off(); return; }
    isOn = true;
    shownBefore = view.view;
    button.setAttribute("aria-pressed", "true");
    ask();
  };
  for (const select of [method, target]) select.addEventListener("change", () => { if (isOn) ask(); });
  view.id = id;
  view.run = run;
  return view;
}

function withStep(t) {
  const url = new URL(location.href);
  if (t) url.searchParams.set("t", String(t)); else url.searchParams.delete("t");
  url.searchParams.delete("play");
  return url.pathname + url.search;
}

// --- strip of episodes

function Strip({ list, run, episode, other, onDone }) {
  const running = list.episodes.some((one) => one.status === "running");
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(onDone, 1500);
    return () => clearInterval(timer);
  }, [running]);
  if (!list.episodes.length) return null;
  return html`<ol class="in-strip" aria-label="Recorded episodes, worst first">${list.episodes.map((one) => html`<${Card} key=${one.id} one=${one} run=${run}
    isShown=${one.id === episode} isOther=${one.id === other} />`)}</ol>`;
}

function Card({ one, run, isShown, isOther }) {
  const middle = Math.floor((one.n_frames - 1) / 2);
  const stop = (event) => { event.preventDefault(); attempt(() => stopEpisode(run, one.id)); };
  return html`<li class=${isShown ? "shown" : isOther ? "other" : ""}>
    <a href=${href(`/inspect/${encodeURIComponent(run)}`, { episode: one.id })} aria-current=${isShown ? "true" : null} title=${one.id}>
      ${one.n_frames > 0 ? html`<img src=${frameUrl(run, one.id, middle)} alt="" loading="lazy" />` : html`<span class="in-noframe">no frames</span>`}
      <b>${one.return === undefined ? one.status : value(one.return)}</b>
      <span class="quiet">${one.steps === undefined ? "" : `${one.steps} steps, ${one.ended}`}</span>
      <span class="quiet">${count(one.env_steps)} · seed ${one.seed}${one.greedy ? "" : " · sampled"}${one.parent ? ` · branch at ${one.parent.step}` : ""}</span>
    </a>${one.status === "running" && canWrite() && html`<button type="button" onClick=${stop}>Stop</button>`}</li>`;
}

// --- forms

const checkpointOptions = (list) => list.checkpoints.slice().reverse().map((c) => [String(c.env_steps),
  `${count(c.env_steps)}${c.best ? " best" : ""}${c.last ? " last" : ""}${c.score === null ? "" : ` (${value(c.score)})`}`]);
const bestOf = (list) => String((list.checkpoints.find((c) => c.best) ?? list.checkpoints.at(-1))?.env_steps ?? "");

function PlayForm({ list, play, wanted }) {
  const [busy, setBusy] = useState(false);
  const isKnown = list.checkpoints.some((c) => String(c.env_steps) === wanted);
  const [checkpoint, setCheckpoint] = useState(isKnown ? wanted : bestOf(list));
  const [mode, setMode] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const given = String(form.get("seed")).trim();
    const seed = /^\d+$/.test(given) ? Number(given) : given || "test";
    setBusy(true);
    await play({ checkpoint, seed, greedy: mode === "" ? null : mode === "greedy", max_steps: Number(form.get("steps")) || 1000 });
    setBusy(false);
  };
  if (!list.checkpoints.length) return html`<p class="quiet">This run has no checkpoint yet.</p>`;
  return html`<form class="row in-form" onSubmit=${submit}>
    <${Select} label="Checkpoint" value=${checkpoint} options=${checkpointOptions(list)} onChange=${setCheckpoint} />
    <label class="field"><span>Seed</span><input name="seed" size="8" placeholder="test" pattern="\\d{1,9}|test|val|train" title="test, val, train or a number" /></label>
    <${Select} label="Actions" value=${mode} options=${[["", "as evaluated"], ["greedy", "best"], ["sampled", "sampled"]]} onChange=${setMode} />
    <label class="field"><span>Steps</span><input name="steps" type="number" min="1" max="50000" value="1000" /></label>
    <button class="primary" disabled=${busy}>${busy ? "Starting…" : "Play"}</button></form>`;
}

function BranchDialog({ dialog, list, play, onClose }) {
  const { view } = dialog;
  const { facts } = view.data;
  const at = Math.min(view.own, Math.max(0, view.data.last - (view.data.isDone ? 1 : 0)));
  const [checkpoint, setCheckpoint] = useState(String(facts.env_steps));
  const [action, setAction] = useState(dialog.action === null ? "" : String(dialog.action));
  const [busy, setBusy] = useState(false);
  const { kind, names, leaves } = facts.action;
  const choices = kind === "discrete" ? names.map((name, i) => [String(leaves[0].start + i), name]) : null;
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    const parsed = parseAction(action, kind);
    await play({ checkpoint, max_steps: facts.max_steps, branch: { of: view.id, at, action: parsed } });
    setBusy(false);
  };
  const width = view.data.labels("action").length;
  return html`<${Dialog} title=${`Branch at step ${at}`} onClose=${onClose}><form class="in-dialog" onSubmit=${submit}>
    <p class="quiet">The episode is repeated up to step ${at}, where the agent did <b>${view.data.actionText(at)}</b>.</p>
    ${choices ? html`<${Select} label="Action" value=${action} options=${[["", "what the agent decides"], ...choices]} onChange=${setAction} />`
      : html`<label class="field"><span>Action</span><input value=${action} onInput=${(e) => setAction(e.target.value)} placeholder=${`${width} numbers, or empty: what the agent decides`} /></label>`}
    <${Select} label="Go on with" value=${checkpoint} options=${checkpointOptions(list)} onChange=${setCheckpoint} />
    <div class="row"><span class="grow"></span><button class="primary" autofocus disabled=${busy}>${busy ? "Starting…" : "Branch"}</button></div></form><//>`;
}

function parseAction(text, kind) {
  const trimmed = text.trim();
  if (!trimmed) return null;
  if (kind === "discrete") return Number(trimmed);
  return trimmed.replace(/[[\]]/g, "").split(/[\s,]+/).filter(Boolean).map(Number);
}

function CompareDialog({ dialog, list, play, onClose }) {
  const { facts } = dialog.view.data;
  const others = list.episodes.filter((one) => one.seed === facts.seed && one.id !== dialog.view.id);
  const checkpoints = checkpointOptions(list);
  const first = checkpoints.find(([steps]) => steps !== String(facts.env_steps)) ?? checkpoints[0];
  const [checkpoint, setCheckpoint] = useState(first?.[0] ?? "");
  const [episode, setEpisode] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    if (episode) { onClose(); setQuery({ with: episode }, { replace: false }); return; }
    setBusy(true);
    await play({ checkpoint, seed: facts.seed, greedy: facts.greedy, max_steps: facts.max_steps }, { compare: true });
    setBusy(false);
  };
  return html`<${Dialog} title="Compare on the same seed" onClose=${onClose}><form class="in-dialog" onSubmit=${submit}>
    <${Select} label="Play with" value=${checkpoint} options=${checkpoints} onChange=${setCheckpoint} />
    ${others.length > 0 && html`<${Select} label="Or show" value=${episode} options=${[["", "–"], ...others.map((one) => [one.id, `${one.id} (${one.return === undefined ? one.status : value(one.return)})`])]} onChange=${setEpisode} />`}
    <div class="row"><span class="grow"></span><button class="primary" autofocus disabled=${busy}>${busy ? "Starting…" : "Compare"}</button></div></form><//>`;
}

function TrustDialog({ dialog, onClose }) {
  return html`<${Dialog} title="Import code of this run?" onClose=${onClose}><p>${dialog.text}</p>
    <div class="row"><span class="grow"></span><button type="button" onClick=${onClose}>Cancel</button>
    <button type="button" class="danger" onClick=${() => { onClose(); dialog.again(); }}>Import it</button></div><//>`;
}

/** The first step at which two episodes differ, marked in the charts; asked again while either grows. */
function Difference({ run, a, b, views }) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    let isGone = false;
    const look = () => difference(run, a, b).then((one) => {
      if (isGone) return;
      const [first, second] = [views.current.a?.data, views.current.b?.data];
      const isOver = Boolean(first?.isDone && second?.isDone);
      setFound({ ...one, isOver, upTo: Math.min(first?.last ?? 0, second?.last ?? 0), branch: branchOf(first, second) });
      views.current.a?.setMarks(one.step === null ? [] : [{ t: one.step, colour: "--alert", label: `first difference: ${one.what}` }]);
    }, () => {});
    const again = throttled(look, 1000);
    look();
    addEventListener("episode-open", look);
    addEventListener("episode-grew", again);
    return () => { isGone = true; removeEventListener("episode-open", look); removeEventListener("episode-grew", again); views.current.a?.setMarks([]); };
  }, [run, a, b]);
  if (!found) return null;
  const step = found.step ?? found.branch?.step ?? null;
  const text = !found.same_start && found.upTo > 0 ? "The episodes begin differently: another environment or seed."
    : found.step !== null ? `First difference at step ${found.step}: another ${found.what}.`
      : found.isOver ? "No difference as far as both go." : `No difference up to step ${found.upTo}; still playing.`;
  return html`<p class="in-difference" role="status" data-step=${step}>${found.branch ? `${found.branch.text} ` : ""}${found.branch?.isOther && (found.step === null || found.step === found.branch.step) ? "" : text}
    ${step !== null && html` <button type="button" onClick=${() => views.current.a?.seek(step)}>Go there</button>`}</p>`;
}

/** What is known of a branch before it is played: where it leaves the other episode, and how. */
function branchOf(first, second) {
  const parent = first?.facts.parent;
  if (!parent || parent.episode !== second?.facts.id) return null;
  const { step, action } = parent;
  if (action === null) return { step: null, isOther: false, text: `A goes on from step ${step} of B with checkpoint ${count(first.facts.env_steps)}.` };
  const before = second.actionText(step);
  const names = first.facts.action.names ?? [];
  const start = first.facts.action.leaves?.[0]?.start ?? 0;
  const now = first.actionText(step) || (typeof action === "number" ? names[action - start] ?? action : String(action));
  const isOther = before !== "" && now !== before;
  return { step: isOther ? step : null, isOther, text: `A leaves B at step ${step}: ${now} instead of ${before || "what B did"}.` };
}
