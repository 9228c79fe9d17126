// The console of a job, live.
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import { get } from "./api.js";
import { follow } from "./stream.js";

export function JobConsole({ id, onEnd }) {
  const [text, setText] = useState("");
  const [job, setJob] = useState(null);
  const cursor = useRef("");
  const box = useRef(null);
  useEffect(() => {
    const load = async () => { try { setJob((await get(`jobs/${encodeURIComponent(id)}`)).job); } catch { /* it may have been removed */ } };
    load();
    const timer = setInterval(load, 1500);
    const stop = follow(() => ({ job: id, job_cursor: cursor.current }), {
      job: (told) => { cursor.current = told.cursor; setText((old) => (told.reset ? "" : old) + told.text); },
    });
    return () => { clearInterval(timer); stop(); };
  }, [id]);
  const isRunning = job?.is_running ?? true;
  useEffect(() => { if (job && !isRunning) onEnd?.(job); }, [isRunning]);
  useEffect(() => { if (box.current) box.current.scrollTop = box.current.scrollHeight; }, [text]);
  return html`<div class="job" data-state=${isRunning ? "running" : "ended"}>
    ${job && html`<p class="quiet mono">${job.command}</p>`}
    <pre class="log" ref=${box} tabindex="0" role="log" aria-label="Console">${text || "starting…"}</pre>
    <p role="status">${isRunning ? html`<span class="status running"><i>●</i>running</span>` : html`<span class=${`status ${job.exit_code ? "bad" : "good"}`}>${job.exit_code ? `ended with ${job.exit_code}` : "ended"}</span>`}</p></div>`;
}
