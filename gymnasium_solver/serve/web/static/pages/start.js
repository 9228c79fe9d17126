// Start a training: choose a config, change fields with their documentation beside them, watch it.
import { html, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { canWrite, get, post } from "../lib/api.js";
import { configText } from "../lib/format.js";
import { JobConsole } from "../lib/job.js";
import { attempt, throttled } from "../lib/parts.js";
import { go, href, setQuery } from "../lib/router.js";

export default function Start({ query }) {
  const target = query.get("config") ?? "";
  const job = query.get("job") ?? "";
  if (!canWrite()) return html`<section class="empty"><h1>Start</h1><p>This server was started with <code>--read-only</code>.</p></section>`;
  if (job) return html`<${Started} job=${job} />`;
  return target ? html`<${Form} key=${target} target=${target} query=${query} />` : html`<${Picker} query=${query} />`;
}

function Picker({ query }) {
  const [configs, setConfigs] = useState(null);
  const text = query.get("q") ?? "";
  useEffect(() => { attempt(async () => setConfigs((await get("configs")).configs)); }, []);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = (configs ?? []).filter((c) => words.every((w) => `${c.name} ${c.suite} ${c.algo_id} ${c.description}`.toLowerCase().includes(w)));
  const suites = Map.groupBy ? Map.groupBy(found, (c) => c.suite) : groupBy(found);
  const own = text.trim();
  const submit = (event) => { event.preventDefault(); if (found.length) go("start", { config: found[0].name }); else if (own) go("start", { config: own }); };
  return html`<section><h1>Start a training</h1><form class="row toolbar" onSubmit=${submit}><div class="search"><input type="search" autofocus value=${text} aria-label="Search the configs" placeholder="Search the configs, or type the id of any environment" onInput=${(e) => setQuery({ q: e.target.value })} /></div><span class="quiet" role="status">${configs ? `${found.length} configs` : "Loading…"}</span></form>
    ${configs && found.length === 0 && own && html`<section class="empty"><p>No config of this name.</p><button class="primary" onClick=${() => go("start", { config: own })}>Try ${own} with fields chosen by its spaces</button></section>`}
    ${[...suites].map(([suite, list]) => html`<section key=${suite} class="suite"><h2>${suite || "your own"}</h2><ul class="configs">${list.map((c) => html`<li key=${c.name}><a class="config-card" href=${href("start", { config: c.name })}><b>${c.name}</b><span class="chip">${c.algo_id}</span><span class="quiet">${c.description}</span></a></li>`)}</ul></section>`)}</section>`;
}

const groupBy = (list) => { const map = new Map(); for (const c of list) map.set(c.suite, [...(map.get(c.suite) ?? []), c]); return map; };

/** The fields of a config. What was typed is checked by the server after a short pause. */
function Form({ target, query }) {
  const [base, setBase] = useState(null);
  const [checked, setChecked] = useState({ errors: {}, other: "", pending: true });
  const [typed, setTyped] = useState(() => Object.fromEntries([...query].filter(([k]) => k.startsWith("f.")).map(([k, v]) => [k.slice(2), v])));
  const [name, setName] = useState("");
  const [text, setText] = useState("");
  const [trust, setTrust] = useState(false);
  const [onlyMain, setOnlyMain] = useState(true);
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
  const set = (field, v) => setTyped((old) => { const next = { ...old }; if (v === null) delete next[field]; else next[field] = v; return next; });
  const isWrong = Object.keys(checked.errors).length > 0 || checked.other;
  const submit = (event) => {
    event.preventDefault();
    attempt(() => post("start", { config: target, fields: typed, name: name.trim(), trust })).then((got) => { if (got) go("start", { job: got.job.id }); });
  };
  const command = ["gsolve train", target, ...Object.entries(typed).map(([k, v]) => `--${k.replaceAll("_", "-")} ${/[\s{}[\]*]/.test(v) ? `"${v}"` : v}`)].join(" ");
  if (!base) return html`<section class="empty"><h1>${target}</h1>${checked.pending ? html`<p>Reading the config; the first one takes a few seconds.</p>` : html`<p class="bad" role="alert">${checked.other || Object.values(checked.errors).join(" ")}</p>${checked.needsTrust && html`<p><button class="danger" onClick=${() => setTrust(true)}>Import it</button></p>`}<p><a href=${href("start")}>Choose another</a></p>`}</section>`;
  const words = text.trim().toLowerCase();
  return html`<form class="start-form" onSubmit=${submit}>
    <header class="start-head panel"><div class="row"><h1>${target}</h1><span class="grow"></span><input value=${name} placeholder="name of the run (optional)" aria-label="Name of the run" onInput=${(e) => setName(e.target.value)} /><button class="primary" disabled=${isWrong || checked.pending}>Start training</button></div>
      ${base.description && html`<p class="quiet">${base.description}</p>`}
      <pre class="scroll" tabindex="0">${command}</pre>
      <p role="status" class=${isWrong ? "bad" : "quiet"}>${checked.pending ? "Checking…" : checked.other || (isWrong ? "Some fields are wrong." : Object.keys(typed).length ? `Fine. ${Object.keys(typed).length} changed.` : "As shipped. Change what you like.")}</p></header>
    <div class="row toolbar"><input type="search" value=${text} placeholder="Search the fields and their documentation" aria-label="Search the fields" size="42" onInput=${(e) => setText(e.target.value)} />
      <label class="field"><input type="checkbox" checked=${onlyMain} onChange=${() => setOnlyMain(!onlyMain)} /><span>only what this config sets, and what you changed</span></label><span class="grow"></span><a href=${href("start")}>Other config</a></div>
    ${base.groups.map((group) => {
      const fields = group.fields.filter((f) => !["spec", "description", "project_id", "variant"].includes(f.name)).filter((f) => (words ? `${f.name} ${f.doc}`.toLowerCase().includes(words) : !onlyMain || !f.is_default || f.name in typed || MAIN.has(f.name)));
      return fields.length > 0 && html`<fieldset key=${group.title} class="panel block"><legend>${group.title}</legend>${fields.map((f) => html`<${Field} key=${f.name} field=${f} value=${base.values[f.name]} typed=${typed[f.name]} error=${checked.errors[f.name]} set=${set} />`)}</fieldset>`;
    })}</form>`;
}

const MAIN = new Set(["max_env_steps", "seed", "n_envs", "policy_lr"]);

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

function Field({ field, value, typed, error, set }) {
  const id = `field-${field.name}`;
  const isChanged = typed !== undefined;
  const shown = isChanged ? typed : configText(value);
  const options = field.kind === "boolean" ? [true, false] : field.choices;
  return html`<div class=${`form-row ${isChanged ? "changed" : ""}`}><label for=${id} class="mono">${field.name}</label>
    <div class="input">${options.length ? html`<select id=${id} aria-describedby=${`${id}-doc`} onChange=${(e) => set(field.name, e.target.value)}>${options.map((o) => html`<option key=${configText(o)} value=${configText(o)} selected=${configText(o) === shown}>${configText(o)}</option>`)}</select>`
      : html`<input id=${id} class="mono" value=${shown} spellcheck=${false} autocomplete="off" aria-describedby=${`${id}-doc`} aria-invalid=${error ? "true" : "false"} onInput=${(e) => set(field.name, e.target.value)} />`}
      ${isChanged && html`<button type="button" class="plain small" title="As in the config" aria-label=${`Reset ${field.name}`} onClick=${() => set(field.name, null)}>↺</button>`}</div>
    <p id=${`${id}-doc`} class="quiet">${error && html`<span class="bad">${error}</span> `}${field.doc}</p></div>`;
}

function Started({ job }) {
  const [run, setRun] = useState(null);
  useEffect(() => {
    const look = async () => { try { const got = await get(`jobs/${encodeURIComponent(job)}`); setRun(got.job.run); } catch { /* not there yet */ } };
    look();
    const timer = setInterval(look, 1000);
    return () => clearInterval(timer);
  }, [job]);
  return html`<section class="started"><header class="row"><h1>${job.replace(/^run:/, "")}</h1><span class="grow"></span>${run && html`<a class="button" href=${href(`runs/${encodeURIComponent(run)}`)}>Open the run</a>`}<button class="danger" onClick=${() => attempt(() => post(`jobs/${encodeURIComponent(job)}/stop`), "It saves and stops.")}>Stop</button><a class="button" href=${href("start")}>Start another</a></header>
    <${JobConsole} id=${job} /></section>`;
}
