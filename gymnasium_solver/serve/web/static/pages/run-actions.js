// What can be done to a run: inspect, stop, resume, evaluate, record, change fields, rename, delete. What
// takes long runs as a job on the server's machine.
import { html, useState } from "../vendor/ui.js";
import { apiUrl, canWrite, get, post, postTrusted } from "../lib/api.js";
import { configText } from "../lib/format.js";
import { JobConsole } from "../lib/job.js";
import { followJobs } from "../lib/jobs.js";
import { Menu } from "../lib/menu.js";
import { Dialog, attempt, toast } from "../lib/parts.js";
import { go, href } from "../lib/router.js";

const path = (id, rest) => `runs/${encodeURIComponent(id)}/${rest}`;

/** The form that starts a training, filled in from a run and some changes of fields. */
export const startHref = (id, changes = {}) =>
  href("start", { config: `run:${id}`, ...Object.fromEntries(Object.entries(changes).map(([name, text]) => [`f.${name}`, text])) });

/** Where the inspector plays a checkpoint at once; the worst of `n` episodes. */
export const watchHref = (id, { checkpoint = "@last", n = 1, seed, greedy } = {}) =>
  href(`/inspect/${encodeURIComponent(id)}`, { worst: n, checkpoint, seed, greedy: greedy === undefined ? "" : greedy ? "1" : "0" });

const copy = (text, what) => attempt(() => navigator.clipboard.writeText(text), `${what} copied`);

export function Actions({ id, detail, run, reload }) {
  const [dialog, setDialog] = useState(null);
  const [job, setJob] = useState(null);
  const close = () => setDialog(null);
  const call = (action, body = {}) => attempt(() => postTrusted(path(id, action), body));
  const stop = async () => { if (await call("stop")) { toast("It saves and stops."); reload(); } };
  const isPaused = run.activity?.phase === "paused";
  const pause = async () => { if (await call("pause", { paused: !isPaused })) { toast(isPaused ? "It goes on." : "It waits at the end of its epoch."); reload(); } };
  const start = async (action, body) => { const got = await call(action, body); if (got) { close(); setJob(got.job); followJobs(); reload(); } };
  const archive = () => attempt(() => post("runs/archive", { runs: [id] }), "Archived; Runs, Archived restores it").then((done) => { if (done) go("/"); });
  const isOver = !detail.is_alive && run.status !== "broken";
  const hasCheckpoint = run.checkpoints.length > 0;
  const may = canWrite();
  const item = (kind, text) => html`<button onClick=${() => setDialog(kind)}>${text}</button>`;
  return html`<div class="row run-actions">
    ${may && detail.is_alive && html`<button class="danger" onClick=${stop}>Stop</button>`}
    ${may && detail.is_alive && html`<button onClick=${pause}>${isPaused ? "Go on" : "Pause"}</button>`}
    ${may && detail.is_alive && hasCheckpoint && html`<a class="button" href=${watchHref(id)} title="Play the newest checkpoint while it trains">Watch</a>`}
    ${may && isOver && hasCheckpoint && html`<button onClick=${() => setDialog("resume")}>Resume…</button>`}
    ${hasCheckpoint && html`<a class="button primary" href=${href(`/inspect/${encodeURIComponent(id)}`)}>Inspect</a>`}
    <${Menu} label="More" title="More actions">
      ${may && hasCheckpoint && html`${item("evaluate", "Evaluate…")}${item("record", "Record a video…")}`}
      ${may && detail.is_alive && item("set", "Change fields…")}
      ${may && html`<a href=${startHref(id)}>Duplicate…</a><hr />`}
      <a href=${apiUrl("report.html", { runs: [id] })} download=${`${id}.html`}>Report (HTML)</a>
      <a href=${apiUrl(path(id, "metrics.csv"))} download>All metrics (CSV)</a>
      <a href=${apiUrl(path(id, "log.txt"))} download=${`${id}.log`}>Log</a><hr />
      <button onClick=${() => copy(id, "Id")}>Copy the id</button>
      <button onClick=${() => copy(detail.commands.at(-1), "Command")}>Copy the command</button>
      <button onClick=${() => attempt(async () => copy((await get(path(id, "files"))).config, "Config"))}>Copy the config (YAML)</button>
      ${may && isOver && html`<hr />${item("rename", "Rename…")}<button onClick=${archive}>Archive</button><button class="danger" onClick=${() => setDialog("delete")}>Delete…</button>`}<//>
    ${dialog === "resume" && html`<${Resume} run=${run} onClose=${close} onStart=${(fields) => start("resume", { fields })} />`}
    ${(dialog === "evaluate" || dialog === "record") && html`<${Play} kind=${dialog} run=${run} onClose=${close} onStart=${(body) => start(dialog, body)} />`}
    ${dialog === "set" && html`<${SetFields} config=${detail.config ?? {}} onClose=${close} onStart=${(fields) => start("set", { fields })} />`}
    ${dialog === "rename" && html`<${Rename} id=${id} onClose=${close} />`}
    ${dialog === "delete" && html`<${Delete} id=${id} onClose=${close} />`}
    ${job && html`<${Dialog} title=${job.title} onClose=${() => { setJob(null); reload(); }}><${JobConsole} id=${job.id} onEnd=${reload} /><//>`}</div>`;
}

function Resume({ run, onClose, onStart }) {
  const submit = (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("max").trim();
    onStart(text ? { max_env_steps: text } : {});
  };
  const isDone = run.max_env_steps !== null && run.env_steps >= run.max_env_steps;
  return html`<${Dialog} title="Resume the training" onClose=${onClose}><form class="menu-form" onSubmit=${submit}>
    <p>It continues exactly where its last checkpoint is.</p>
    <label>Budget in env steps<input name="max" inputmode="numeric" autofocus placeholder=${String(run.max_env_steps ?? "")} value=${isDone ? String(2 * run.env_steps) : ""} /></label>
    <div class="row"><button class="primary">Resume</button></div></form><//>`;
}

function Play({ kind, run, onClose, onStart }) {
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    onStart({ checkpoint: form.get("checkpoint"), episodes: Number(form.get("episodes")) });
  };
  const points = [["@best", "best"], ["@last", "last"], ...run.checkpoints.map((c) => [String(c.env_steps), `${c.env_steps.toLocaleString("en-US")} env steps`])];
  return html`<${Dialog} title=${kind === "record" ? "Record a video" : "Evaluate on fresh episodes"} onClose=${onClose}><form class="menu-form" onSubmit=${submit}>
    <label>Checkpoint<select name="checkpoint">${points.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></label>
    <label>Episodes<input name="episodes" type="number" min="1" max=${kind === "record" ? 16 : 10000} value=${kind === "record" ? 1 : 100} /></label>
    <div class="row"><button class="primary">${kind === "record" ? "Record" : "Evaluate"}</button></div></form><//>`;
}

/** Fields that change at the next epoch, as `gsolve set` changes them. */
function SetFields({ config, onClose, onStart }) {
  const [name, setName] = useState("policy_lr" in config ? "policy_lr" : Object.keys(config)[0] ?? "");
  const submit = (event) => { event.preventDefault(); onStart({ [name]: new FormData(event.target).get("value").trim() }); };
  return html`<${Dialog} title="Change a field while it trains" onClose=${onClose}><form class="menu-form" onSubmit=${submit}>
    <p>It takes effect at the next epoch and is recorded in the run. The run refuses a field that cannot change while it trains.</p>
    <label>Field<select value=${name} onChange=${(e) => setName(e.target.value)}>${Object.keys(config).filter((field) => field !== "spec").map((field) => html`<option key=${field} value=${field} selected=${field === name}>${field}</option>`)}</select></label>
    <label>Value<input name="value" class="mono" required autofocus placeholder=${configText(config[name])} spellcheck=${false} /></label>
    <div class="row"><button class="primary">Change</button></div></form><//>`;
}

function Rename({ id, onClose }) {
  const submit = (event) => {
    event.preventDefault();
    const name = new FormData(event.target).get("name").trim();
    attempt(() => post(path(id, "rename"), { name }), "Renamed").then((got) => { if (got) { onClose(); go(`runs/${encodeURIComponent(got.run)}`, {}, { replace: true }); } });
  };
  return html`<${Dialog} title="Rename the run" onClose=${onClose}><form class="menu-form" onSubmit=${submit}><p>The name is that of its folder. Links to the old name no longer lead here.</p>
    <label>Name<input name="name" class="mono" value=${id} required autofocus maxlength="128" spellcheck=${false} /></label><div class="row"><button class="primary">Rename</button></div></form><//>`;
}

function Delete({ id, onClose }) {
  const remove = () => attempt(() => post("runs/delete", { runs: [id] }), "Deleted").then((got) => { if (got) { onClose(); go("/"); } });
  return html`<${Dialog} title="Delete the run for good?" onClose=${onClose}><p><code class="anywhere">${id}</code> with its checkpoints, metrics and videos is deleted and cannot be restored. The archive keeps it instead.</p>
    <div class="row"><span class="grow"></span><button onClick=${onClose}>Cancel</button><button class="danger" onClick=${remove}>Delete for good</button></div><//>`;
}
