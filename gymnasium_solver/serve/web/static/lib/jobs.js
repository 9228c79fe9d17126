// What runs in the background: the list behind the button in the bar, a message when something ends,
// a notice of the browser if it is wanted, and the title of the page when a run is solved.
import { effect, html, signal, useState } from "../vendor/ui.js";
import { canWrite, get, post, session } from "./api.js";
import { ago, value, spread } from "./format.js";
import { JobConsole } from "./job.js";
import { kept } from "./kept.js";
import { Dialog, attempt, toast } from "./parts.js";
import { href } from "./router.js";
import { refresh } from "./runs-store.js";

export const jobs = signal([]);
export const drawerOpen = signal(false);
/** Stands before the title of the page: "✓ solved". */
export const titleNote = signal("");
const wantsNotices = kept("notices", false);

const BUSY_MS = 1500, IDLE_MS = 15_000;
const watched = new Map(); // id -> job, as long as it runs
let timer = 0;

/** Look at the jobs now, and again soon while one runs; a hidden page less often, or not at all. */
export async function followJobs() {
  clearTimeout(timer);
  try {
    const now = (await get("jobs")).jobs;
    for (const [id, before] of watched) {
      if (now.some((job) => job.id === id && job.is_running)) continue;
      watched.delete(id);
      tell(now.find((job) => job.id === id) ?? (await get(`jobs/${encodeURIComponent(id)}`)).job ?? before);
    }
    for (const job of now) if (job.is_running) watched.set(job.id, job);
    jobs.value = now;
  } catch { /* no connection: the bar says so */ }
  clearTimeout(timer);
  if (document.hidden && !watched.size) return; // nothing can end that anyone waits for
  timer = setTimeout(followJobs, !document.hidden && (watched.size || drawerOpen.value) ? BUSY_MS : IDLE_MS);
}
let isFollowing = false;
effect(() => { if (session.value && !isFollowing) { isFollowing = true; followJobs(); } });
document.addEventListener("visibilitychange", () => { if (!document.hidden && session.value) { followJobs(); setTimeout(() => { titleNote.value = ""; }, 4000); } });

export const nRunning = () => jobs.value.filter((job) => job.is_running).length;

const address = (job) => (job.experiment ? href(`experiments/${encodeURIComponent(job.experiment)}`) : job.sweep ? href(`sweeps/${encodeURIComponent(job.sweep)}`) : job.run ? href(`runs/${encodeURIComponent(job.run)}`, { tab: job.kind === "eval" ? "evaluations" : job.kind === "video" ? "videos" : "" }) : "");

/** What a job came to, in a sentence. */
function outcome(job) {
  if (job.is_running) return "running";
  if (job.exit_code > 0 && job.exit_code !== 75) return `failed${job.why ? `: ${job.why}` : ""}`;
  if (job.exit_code === 75 || job.exit_code < 0 || job.status === "interrupted") return "stopped";
  if (job.solved) return `solved, test ${value(job.test)}`;
  if (job.scores?.length) return job.scores.map((s) => `${s.greedy ? "greedy" : "sampled"} ${value(s.mean)}${s.stderr === null ? "" : ` ± ${spread(s.stderr, s.mean)}`}`).join(", ");
  if (job.test !== undefined && job.test !== null) return `ended, test ${value(job.test)}`;
  return "ended";
}

function tell(job) {
  const text = `${job.title}: ${outcome(job)}`;
  const isBad = job.exit_code > 0 && job.exit_code !== 75;
  const link = address(job);
  toast(text, isBad ? "bad" : "good", link && link !== location.pathname + location.search ? [link, "Open"] : null);
  refresh();
  if (job.solved) {
    titleNote.value = "✓ solved";
    if (!document.hidden) setTimeout(() => { titleNote.value = ""; }, 20_000);
  } else if (document.hidden) titleNote.value = isBad ? "✕ failed" : "● ended";
  if (wantsNotices.value && document.hidden && globalThis.Notification?.permission === "granted") new Notification(job.solved ? "Solved" : isBad ? "Failed" : "Ended", { body: text, tag: job.id });
}

export function JobsButton() {
  const n = nRunning();
  return html`<button class="plain jobs-button" aria-haspopup="dialog" aria-expanded=${drawerOpen.value} onClick=${() => { drawerOpen.value = !drawerOpen.value; followJobs(); }} title="Jobs in the background (g j)">Jobs${n > 0 && html`<span class="count" aria-label=${`${n} running`}>${n}</span>`}</button>`;
}

export function JobsDrawer() {
  const [shown, setShown] = useState(null);
  if (!drawerOpen.value) return null;
  const close = () => { drawerOpen.value = false; };
  return html`<div class="drawer" role="dialog" aria-label="Jobs" onKeyDown=${(event) => { if (event.key === "Escape" && !shown) close(); }}>
    <div class="row"><h2>Jobs</h2><span class="grow"></span><${Notices} /><button class="plain" aria-label="Close the jobs" autofocus onClick=${close}>✕</button></div>
    ${jobs.value.length === 0 ? html`<p class="quiet">Trainings, evaluations and recordings that are started here run as processes of their own; they are listed here.</p>`
      : html`<ul class="plain-list">${jobs.value.map((job) => html`<${Job} key=${job.id} job=${job} show=${() => setShown(job)} />`)}</ul>`}
    ${shown && html`<${Dialog} title=${shown.title} onClose=${() => setShown(null)}><${JobConsole} id=${shown.id} onEnd=${followJobs} /><//>`}</div>`;
}

function Job({ job, show }) {
  const state = job.is_running ? "running" : job.exit_code > 0 && job.exit_code !== 75 ? "bad" : job.solved ? "good" : "quiet";
  const stop = () => attempt(() => post(`jobs/${encodeURIComponent(job.id)}/stop`), "It saves and stops.").then(followJobs);
  const link = address(job);
  return html`<li class="job-row"><div class="job-title">${link ? html`<a href=${link}>${job.title}</a>` : job.title}</div>
    <div class="row"><span class=${`status ${state}`}><i aria-hidden="true">${job.is_running ? "●" : state === "bad" ? "✕" : "✓"}</i>${outcome(job)}</span><span class="quiet">${ago(job.started_at)}</span><span class="grow"></span>
      <button class="plain small" onClick=${show}>console</button>${job.is_running && canWrite() && html`<button class="plain small danger" onClick=${stop}>stop</button>`}</div></li>`;
}

/** Ask for notices of the browser; they are shown only while the page is hidden. */
function Notices() {
  if (!globalThis.Notification) return null;
  const isOn = wantsNotices.value && Notification.permission === "granted";
  const flip = async () => {
    if (isOn) { wantsNotices.value = false; return; }
    const given = await Notification.requestPermission();
    wantsNotices.value = given === "granted";
    if (given !== "granted") toast("The browser does not allow notices of this page.", "bad");
  };
  return html`<button class="small" aria-pressed=${isOn} title="A notice of the browser when something ends while this page is hidden" onClick=${flip}>Notify me</button>`;
}

let base = "gsolve";
const showTitle = () => { document.title = `${titleNote.value ? `${titleNote.value} · ` : ""}${base}`; };
/** The title of the page, after what has just ended. */
export const pageTitle = (name) => { base = `${name} · gsolve`; showTitle(); };
effect(() => { if (titleNote.value !== null) showTitle(); });
