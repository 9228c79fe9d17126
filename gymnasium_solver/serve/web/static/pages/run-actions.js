// Stop, resume, evaluate, record: jobs on the server's machine.
import { html, useState } from "../vendor/ui.js";
import { apiUrl, canWrite, postTrusted } from "../lib/api.js";
import { Dialog, attempt, toast } from "../lib/parts.js";
import { href } from "../lib/router.js";
import { JobConsole } from "../lib/job.js";

export function Actions({ id, detail, run, reload }) {
  const [dialog, setDialog] = useState(null);
  const [job, setJob] = useState(null);
  const call = (action, body = {}) => attempt(() => postTrusted(`runs/${encodeURIComponent(id)}/${action}`, body));
  const stop = async () => { if (await call("stop")) { toast("It saves and stops."); reload(); } };
  const resume = async (fields) => { const got = await call("resume", { fields }); if (got) { setDialog(null); setJob(got.job); reload(); } };
  const start = async (action, body) => { const got = await call(action, body); if (got) { setDialog(null); setJob(got.job); } };
  const isOver = !detail.is_alive && run.status !== "broken";
  const hasCheckpoint = run.checkpoints.length > 0;
  return html`<div class="row">
    ${canWrite() && html`
      ${detail.is_alive && html`<button class="danger" onClick=${stop}>Stop</button>`}
      ${isOver && hasCheckpoint && html`<button onClick=${() => setDialog("resume")}>Resume…</button>`}
      ${hasCheckpoint && html`<button onClick=${() => setDialog("evaluate")}>Evaluate…</button><button onClick=${() => setDialog("record")}>Record…</button>`}`}
    ${hasCheckpoint && html`<a class="button" href=${href(`/inspect/${encodeURIComponent(id)}`)}>Inspect</a>`}
    <a class="button" href=${apiUrl("report.html", { runs: [id] })} download=${`${id}.html`}>Report</a>
    ${dialog === "resume" && html`<${Resume} run=${run} onClose=${() => setDialog(null)} onStart=${resume} />`}
    ${(dialog === "evaluate" || dialog === "record") && html`<${Play} kind=${dialog} run=${run} onClose=${() => setDialog(null)} onStart=${(body) => start(dialog, body)} />`}
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
    onStart({ checkpoint: form.get("checkpoint"), episodes: Number(form.get("episodes")), ...(kind === "record" && Number(form.get("grid")) > 1 ? { grid: Number(form.get("grid")) } : {}) });
  };
  const points = [["@best", "best"], ["@last", "last"], ...run.checkpoints.map((c) => [String(c.env_steps), `${c.env_steps.toLocaleString("en-US")} env steps`])];
  return html`<${Dialog} title=${kind === "record" ? "Record a video" : "Evaluate on fresh episodes"} onClose=${onClose}><form class="menu-form" onSubmit=${submit}>
    <label>Checkpoint<select name="checkpoint">${points.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></label>
    <label>Episodes<input name="episodes" type="number" min="1" max=${kind === "record" ? 16 : 10000} value=${kind === "record" ? 1 : 100} /></label>
    <div class="row"><button class="primary">${kind === "record" ? "Record" : "Evaluate"}</button></div></form><//>`;
}
