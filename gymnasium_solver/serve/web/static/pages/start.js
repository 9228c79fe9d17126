// Start a training: choose an environment and an algorithm, then the form; or the console of what
// was started.
import { html, useEffect, useState } from "../vendor/ui.js";
import { canWrite, get, post } from "../lib/api.js";
import { JobConsole } from "../lib/job.js";
import { followJobs } from "../lib/jobs.js";
import { attempt } from "../lib/parts.js";
import { go, href, setQuery } from "../lib/router.js";
import { Form } from "./start-form.js";

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
  const suites = bySuite(found);
  const own = text.trim();
  const n = [...suites.values()].reduce((sum, cards) => sum + cards.length, 0);
  const solve = (env) => attempt(async () => { const made = await post("start", { config: env, solve: true }); followJobs(); go(`experiments/${encodeURIComponent(made.experiment)}`); });
  const submit = (event) => { event.preventDefault(); if (found.length) go("start", { config: found[0].name }); else if (own) go("start", { config: own }); };
  return html`<section><h1>Start a training</h1><form class="row toolbar" onSubmit=${submit}><div class="search"><input type="search" autofocus value=${text} aria-label="Search the configs" placeholder="Search the configs, or type the id of any environment" onInput=${(e) => setQuery({ q: e.target.value })} /></div><span class="quiet" role="status">${configs ? `${n} environments, ${found.length} configs` : "Loading…"}</span></form>
    ${configs && found.length === 0 && own && html`<section class="empty"><p>No config of this name.</p><div class="row"><button class="primary" onClick=${() => solve(own)}>Solve ${own}: measure it, choose, train</button><button onClick=${() => go("start", { config: own })}>Set fields of PPO</button></div></section>`}
    ${[...suites].map(([suite, cards]) => html`<section key=${suite} class="suite"><h2>${suite || "your own"}</h2><ul class="configs">${cards.map((card) => html`<li key=${card.env} class="config-card"><b>${card.env}</b><p class="quiet">${card.description}</p>
      <div class="chips">${card.configs.map((c) => html`<a key=${c.name} class="algo-chip" href=${href("start", { config: c.name })} aria-label=${c.name} title=${c.description}>${c.variant}</a>`)}</div></li>`)}</ul></section>`)}</section>`;
}

/** suite -> cards, one an environment; the configs stay in their order, the plain ones first. */
function bySuite(configs) {
  const suites = new Map();
  for (const c of configs) {
    const cards = suites.get(c.suite) ?? suites.set(c.suite, []).get(c.suite);
    let card = cards.find((one) => one.env === c.env_id);
    if (!card) cards.push((card = { env: c.env_id, description: c.description, configs: [] }));
    card.configs.push(c);
  }
  return suites;
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
