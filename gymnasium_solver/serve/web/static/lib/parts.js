// Small shared parts: messages, the help dialog with the keys, status, tags, dialogs.
import { html, signal, useEffect, useRef } from "../vendor/ui.js";

// --- messages

const toasts = signal([]);
let nextToast = 0;

/** Show a message for a while; `kind`: "info", "good" or "bad"; `link`: [address, text]. */
export function toast(text, kind = "info", link = null) {
  const id = nextToast++;
  toasts.value = [...toasts.value, { id, text, kind, link }];
  setTimeout(() => { toasts.value = toasts.value.filter((t) => t.id !== id); }, kind === "bad" || link ? 9000 : 4500);
}

/** Run an action of the user; its error becomes a message. */
export async function attempt(action, done) {
  try {
    const result = await action();
    if (done) toast(typeof done === "function" ? done(result) : done);
    return result;
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, "bad");
    return undefined;
  }
}

export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">
  ${toasts.value.map((t) => html`<p key=${t.id} class=${t.kind}>${t.text}${t.link && html` <a href=${t.link[0]}>${t.link[1]}</a>`}</p>`)}</div>`;

// --- keys and help

/** Keys of the page shown now: [[keys, what they do], ...]; a page sets it in an effect. */
export const pageKeys = signal([]);
/** Those that work on every page. */
export const everywhereKeys = signal([]);
export const helpOpen = signal(false);

export const isTyping = (target) =>
  target instanceof HTMLElement && (target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select") || target.isContentEditable);

/** Listen for keys while a page is shown. `bindings`: {"j": fn, "/": fn, "?": ...}. */
export function useKeys(bindings, help = []) {
  const current = useRef(bindings);
  current.current = bindings;
  useEffect(() => {
    pageKeys.value = help;
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || helpOpen.value) return;
      if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
      const action = current.current[event.key];
      if (action) { event.preventDefault(); action(event); }
    };
    addEventListener("keydown", onKey);
    return () => { removeEventListener("keydown", onKey); pageKeys.value = []; };
  }, []);
}

addEventListener("keydown", (event) => {
  if (event.key === "?" && !isTyping(event.target)) { event.preventDefault(); helpOpen.value = true; }
});

export function Help() {
  if (!helpOpen.value) return null;
  const rows = [...pageKeys.value, ...everywhereKeys.value, ["?", "this help"]];
  return html`<${Dialog} title="Keys" onClose=${() => { helpOpen.value = false; }}>
    <dl class="keys">${rows.map(([keys, text]) => html`<div key=${keys}><dt>${keys.split(" ").map((k) => html`<kbd>${k}</kbd> `)}</dt><dd>${text}</dd></div>`)}</dl>
  <//>`;
}

export function Dialog({ title, onClose, wide, children }) {
  const ref = useRef(null);
  useEffect(() => { ref.current.showModal(); }, []);
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose}
      onClick=${(event) => { if (event.target === ref.current) ref.current.close(); }}>
    <div class="dialog"><div class="dialog-head"><h2>${title}</h2>
      <button class="plain" aria-label="Close" onClick=${() => ref.current.close()}>✕</button></div>${children}</div></dialog>`;
}

// --- status

const STATUS = { running: "●", created: "○", finished: "✓", interrupted: "■", failed: "✕", killed: "✕", broken: "!" };

export const Status = ({ run }) => {
  const isTested = run.test !== null && run.test !== undefined;
  const isMissed = run.status === "finished" && run.solved === false && isTested;
  const word = run.status === "finished" && run.solved ? "solved" : isMissed ? "not solved" : run.status === "running" && run.activity?.phase ? run.activity.phase : run.status;
  const kind = run.solved ? "good" : ["failed", "killed", "broken"].includes(run.status) ? "bad"
    : run.status === "running" ? "running" : isMissed ? "warn" : "quiet";
  const sign = run.solved && run.status === "finished" ? "★" : STATUS[run.status] ?? "·";
  return html`<span class=${`status ${kind}`} title=${run.stop_reason ? stopWords(run) : run.status}><i aria-hidden="true">${sign}</i>${word}</span>`;
};

/** Why a run ended, in a few words; runs/words.py has the whole sentence. */
const STOPPED = { max_env_steps: "budget used up", max_epochs: "budget used up", solved: "solved by a test", goal_reached_eval: "solved at a validation", goal_reached_train: "solved in training", interrupted: "stopped by you", requested: "stopped by you", diverged: "diverged", error: "an error" };
export const stopWords = (run) => STOPPED[run.stop_reason] ?? run.stop_reason ?? "";

export const Tag = ({ text, onRemove }) => html`<span class="tag">${text}${onRemove && html`<button class="plain" aria-label=${`Remove the tag ${text}`} onClick=${onRemove}>×</button>`}</span>`;

/** A labelled choice. */
export const Select = ({ label, value, options, onChange }) => html`<label class="field"><span>${label}</span>
  <select value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([key, text]) => html`<option key=${key} value=${key} selected=${key === value}>${text}</option>`)}</select></label>`;

/** Call `action` at most once per `wait` ms, the last time with the newest arguments. */
export function throttled(action, wait) {
  let timer = 0;
  let last = 0;
  return (...args) => {
    clearTimeout(timer);
    const now = Date.now();
    const run = () => { last = Date.now(); action(...args); };
    if (now - last >= wait) run();
    else timer = setTimeout(run, wait - (now - last));
  };
}
