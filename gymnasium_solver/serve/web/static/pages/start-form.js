// The form of a config: every field with its documentation, checked by the server while you type; it
// starts one run, an experiment of several seeds, or a sweep.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { post, session } from "../lib/api.js";
import { configText, seconds, short } from "../lib/format.js";
import { throttled } from "../lib/parts.js";
import { href, setQuery } from "../lib/router.js";
import { loaded, name as configName, refresh, runs } from "../lib/runs-store.js";
import { startAndOpen } from "../lib/starting.js";

const KINDS = [["run", "One run"], ["experiment", "Several seeds"], ["sweep", "Sweep"]];
const MAIN = ["max_env_steps", "seed", "n_envs", "policy_lr"];
const HIDDEN = new Set(["spec", "description", "project_id", "variant"]);

export function Form({ target, query }) {
  const [typed, setTyped] = useState(() => Object.fromEntries([...query].filter(([k]) => k.startsWith("f.")).map(([k, v]) => [k.slice(2), v])));
  const [trust, setTrust] = useState(false);
  const { base, checked } = useChecked(target, typed, trust, query);
  const kind = query.get("kind") ?? "run";
  const [many, setMany] = useState({ seeds: 5, trials: 20, atOnce: 1, ranges: [["", ""]] });
  const [name, setName] = useState("");
  const [isStarting, setStarting] = useState(false);
  useEffect(() => { if (!loaded.value) refresh(); }, []);
  const set = (field, v) => setTyped((old) => { const next = { ...old }; if (v === null) delete next[field]; else next[field] = v; return next; });
  if (!base) return html`<section class="empty"><h1>${target}</h1>${checked.pending ? html`<p>Reading the config; the first one takes a few seconds.</p>` : html`<p class="bad" role="alert">${checked.other || Object.values(checked.errors).join(" ")}</p>${checked.needsTrust && html`<p><button class="danger" onClick=${() => setTrust(true)}>Import it</button></p>`}<p><a href=${href("start")}>Choose another</a></p>`}</section>`;
  // Each run of an experiment or a sweep has a seed of its own.
  const fields = kind === "run" ? typed : Object.fromEntries(Object.entries(typed).filter(([k]) => k !== "seed"));
  const search = Object.fromEntries(many.ranges.filter(([field]) => field.trim()).map(([field, range]) => [field.trim(), range.trim()]));
  const isWrong = Object.keys(checked.errors).length > 0 || checked.other;
  const submit = async (event) => {
    event.preventDefault();
    setStarting(true);
    const more = kind === "experiment" ? { seeds: many.seeds, at_once: many.atOnce } : kind === "sweep" ? { search, trials: many.trials, at_once: many.atOnce } : {};
    await startAndOpen({ config: target, fields, name: name.trim(), trust, ...more });
    setStarting(false);
  };
  const button = { run: "Start training", experiment: `Train ${many.seeds} seeds`, sweep: `Search ${many.trials} trials` }[kind];
  return html`<form class="start-form" onSubmit=${submit}>
    <header class="start-head panel"><div class="row"><h1>${target.startsWith("run:") ? `Again: ${target.slice(4)}` : target}</h1><a href=${href("start")}>other config</a><span class="grow"></span>
        <div class="seg" role="group" aria-label="What to start">${KINDS.map(([key, text]) => html`<button type="button" key=${key} aria-pressed=${kind === key} onClick=${() => setQuery({ kind: key === "run" ? "" : key })}>${text}</button>`)}</div>
        <input value=${name} placeholder="name (optional)" aria-label="Name" size="18" onInput=${(e) => setName(e.target.value)} /><button class="primary" disabled=${isWrong || checked.pending || isStarting}>${isStarting ? "Starting…" : button}</button></div>
      ${base.description && html`<p class="quiet">${base.description}</p>`}
      <pre class="scroll" tabindex="0">${commandOf(target, fields, kind, many, search)}</pre>
      <p role="status" class=${isWrong ? "bad" : "quiet"}>${checked.pending ? "Checking…" : checked.other || (isWrong ? "Some fields are wrong." : `${Object.keys(typed).length ? `Fine, ${Object.keys(typed).length} changed.` : "Nothing changed yet."} ${estimate(base.values, kind, many)}`)}</p></header>
    ${kind !== "run" && html`<${Many} kind=${kind} many=${many} setMany=${setMany} base=${base} />`}
    <${Fields} base=${base} typed=${typed} set=${set} errors=${checked.errors} hidesSeed=${kind !== "run"} /></form>`;
}

/** The config with what was typed, as the server sees it after a short pause. */
function useChecked(target, typed, trust, query) {
  const [base, setBase] = useState(null);
  const [checked, setChecked] = useState({ errors: {}, other: "", pending: true });
  const newest = useRef(0);
  const hasBase = useRef(false);
  const check = useMemo(() => throttled(async (fields) => {
    const mine = ++newest.current;
    let got;
    try { got = await post("config", { config: target, fields, trust }); } catch (error) { got = { ok: false, error: error.message }; }
    if (mine !== newest.current) return;
    if (!got.ok && !hasBase.current && Object.keys(fields).length) {
      try { const plain = await post("config", { config: target, fields: {}, trust }); if (plain.ok) { hasBase.current = true; setBase(plain); } } catch { /* told below */ }
    }
    if (got.ok) { hasBase.current = true; setBase(got); setChecked({ errors: {}, other: "", pending: false }); } else setChecked({ ...parse(got.error, Object.keys(fields)), needsTrust: got.needs_trust, pending: false });
  }, 300), [target, trust]);
  useEffect(() => {
    setChecked((old) => ({ ...old, pending: true }));
    setQuery({ ...Object.fromEntries([...query].filter(([k]) => k.startsWith("f.")).map(([k]) => [k, ""])), ...Object.fromEntries(Object.entries(typed).map(([k, v]) => [`f.${k}`, v])) });
    check(typed);
  }, [JSON.stringify(typed), trust]);
  return { base, checked };
}

/** The lines of an error by field; what belongs to no field is `other`. */
function parse(message, typed) {
  const errors = {};
  const rest = [];
  for (const line of message.split("\n")) {
    const found = /^\s*([a-z_][\w.]*): (.*)$/.exec(line);
    if (found && (typed.includes(found[1]) || line.startsWith(" "))) errors[found[1]] = found[2];
    else if (line.trim() && !line.trim().endsWith(":")) rest.push(line.trim());
  }
  return { errors, other: rest.join(" ") };
}

const quoted = (text) => (/[\s{}[\]*|;&<>()$'"]/.test(text) ? `'${text.replaceAll("'", "'\\''")}'` : text);

function commandOf(target, fields, kind, many, search) {
  const file = target.startsWith("run:") ? quoted(`${session.value.root}/${target.slice(4)}/config.yaml`) : target;
  const words = [kind === "sweep" ? "gsolve sweep" : "gsolve train", file];
  if (kind === "experiment") words.push(`--seeds ${many.seeds}`);
  if (kind === "sweep") words.push(...Object.entries(search).map(([field, range]) => `--param ${quoted(range ? `${field}=${range}` : field)}`), `--trials ${many.trials}`);
  if (kind !== "run") words.push(`--jobs ${many.atOnce}`);
  return [...words, ...Object.entries(fields).map(([k, v]) => `--${k.replaceAll("_", "-")} ${quoted(v)}`)].join(" ");
}

/** How long it takes, from the runs of this config here, or else of its environment. */
function estimate(values, kind, many) {
  const budget = values.max_env_steps;
  const done = [...runs.value.values()].filter((run) => run.env_id === values.env_id && run.wall_s > 0 && run.env_steps > 0);
  const own = done.filter((run) => configName(run) === `${values.env_id}:${values.variant ?? values.algo_id}`);
  const speeds = (own.length ? own : done).map((run) => run.env_steps / run.wall_s).sort((a, b) => a - b);
  if (!budget || !speeds.length) return "";
  const one = budget / speeds[Math.floor(speeds.length / 2)];
  const trainings = kind === "experiment" ? many.seeds : kind === "sweep" ? many.trials : 1;
  const from = `${own.length ? own.length : done.length} earlier ${(own.length || done.length) === 1 ? "run" : "runs"} of this ${own.length ? "config" : "environment"}`;
  return `At most about ${seconds((one * trainings) / Math.min(many.atOnce, trainings))}${trainings > 1 ? ` for ${trainings} trainings of ${short(budget)} env steps` : ""}${kind === "sweep" ? ", and the final" : ""}, by ${from}.`;
}

/** Seeds of an experiment; trials and ranges of a sweep. */
function Many({ kind, many, setMany, base }) {
  const change = (more) => setMany((old) => ({ ...old, ...more }));
  const number = (key, label, most) => html`<label class="field"><span>${label}</span><input type="number" min="1" max=${most} value=${many[key]} onInput=${(e) => { const n = Math.round(Number(e.target.value)); if (n >= 1) change({ [key]: n }); }} /></label>`;
  const setRange = (i, j, text) => {
    const ranges = many.ranges.map((row, k) => (k === i ? (j ? [row[0], text] : [text, row[1]]) : row));
    change({ ranges: ranges.at(-1)[0].trim() ? [...ranges, ["", ""]] : ranges });
  };
  return html`<fieldset class="panel block many"><legend>${kind === "sweep" ? "Sweep" : "Experiment"}</legend><div class="row">${kind === "experiment" ? number("seeds", "seeds", 100) : number("trials", "trials", 10_000)}${number("atOnce", "at the same time", 64)}</div>
    ${kind === "sweep" && html`<p class="quiet">Fields to search, with a range or none for the field's own: <code>log:1e-5..1e-2</code>, <code>0.1..0.4</code>, <code>4,10,20</code>, <code>pow2:32..2048</code>. Without any, the main fields of the algorithm are searched.</p>
      <datalist id="field-names">${base.groups.flatMap((g) => g.fields).map((f) => html`<option key=${f.name} value=${f.name} />`)}</datalist>
      <div class="ranges">${many.ranges.map(([field, range], i) => html`<div key=${i} class="row"><input class="mono" list="field-names" placeholder="policy_lr" aria-label=${`Field ${i + 1} to search`} value=${field} onInput=${(e) => setRange(i, 0, e.target.value)} /><input class="mono" placeholder="its own range" aria-label=${`Range of field ${i + 1}`} value=${range} onInput=${(e) => setRange(i, 1, e.target.value)} /></div>`)}</div>`}</fieldset>`;
}

function Fields({ base, typed, set, errors, hidesSeed }) {
  const [text, setText] = useState("");
  const [onlyMain, setOnlyMain] = useState(true);
  const words = text.trim().toLowerCase();
  const every = base.groups.flatMap((g) => g.fields).filter((f) => !HIDDEN.has(f.name));
  const main = MAIN.filter((n) => !(hidesSeed && n === "seed")).map((n) => every.find((f) => f.name === n)).filter(Boolean);
  const isShown = (f) => (words ? `${f.name} ${f.doc}`.toLowerCase().includes(words) : !onlyMain || !f.is_default || f.name in typed);
  const field = (f) => html`<${Field} key=${f.name} field=${f} value=${base.values[f.name]} typed=${typed[f.name]} error=${errors[f.name]} set=${set} />`;
  return html`${!words && main.length > 0 && html`<fieldset class="panel block"><legend>Main fields</legend>${main.map(field)}</fieldset>`}
    <div class="row toolbar"><input type="search" value=${text} placeholder="Search the fields and their documentation" aria-label="Search the fields" size="42" onInput=${(e) => setText(e.target.value)} />
      <label class="field"><input type="checkbox" checked=${onlyMain} onChange=${() => setOnlyMain(!onlyMain)} /><span>only what this config sets, and what you changed</span></label></div>
    ${base.groups.map((group) => {
      const shown = group.fields.filter((f) => !HIDDEN.has(f.name) && !(hidesSeed && f.name === "seed") && (words || !main.includes(f)) && isShown(f));
      return shown.length > 0 && html`<fieldset key=${group.title} class="panel block"><legend>${group.title}</legend>${shown.map(field)}</fieldset>`;
    })}`;
}

function Field({ field, value, typed, error, set }) {
  const id = `field-${field.name}`;
  const isChanged = typed !== undefined;
  const shown = isChanged ? typed : configText(value);
  const options = field.kind === "boolean" ? [true, false] : field.choices;
  return html`<div class=${`form-row ${isChanged ? "changed" : ""}`}><label for=${id} class="mono">${field.name}</label>
    <div class="input">${options.length ? html`<select id=${id} aria-describedby=${`${id}-doc`} onChange=${(e) => set(field.name, e.target.value)}>${options.map((o) => html`<option key=${configText(o)} value=${configText(o)} selected=${configText(o) === shown}>${configText(o)}</option>`)}</select>`
      : html`<input id=${id} class="mono" value=${shown} spellcheck=${false} autocomplete="off" aria-describedby=${`${id}-doc`} aria-invalid=${error ? "true" : "false"} onInput=${(e) => set(field.name, e.target.value)} />`}
      ${isChanged && html`<button type="button" class="plain small" title="As in the config" aria-label=${`Reset ${field.name}`} onClick=${() => set(field.name, null)}>↺</button>`}</div>
    <div id=${`${id}-doc`}>${error && html`<p class="bad">${error}</p>`}<p class="quiet">${field.doc}</p></div></div>`;
}
