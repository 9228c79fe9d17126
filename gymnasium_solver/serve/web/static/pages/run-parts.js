// The parts of a run that are tables and text.
import { html, useEffect, useRef, useState } from "../vendor/ui.js";
import { apiUrl, canWrite, get } from "../lib/api.js";
import { href } from "../lib/router.js";
import { watchHref } from "./run-actions.js";
import { ago, bytes, configText, count, short, value } from "../lib/format.js";

export function Checkpoints({ run }) {
  if (!run.checkpoints.length) return html`<p class="quiet">None yet.</p>`;
  return html`<table><thead><tr><th class="num">env steps</th><th class="num">validation</th><th><span class="visually-hidden">which</span></th></tr></thead><tbody>${[...run.checkpoints].reverse().map((c) => html`<tr key=${c.env_steps}><td class="num"><a href=${href(`/inspect/${encodeURIComponent(run.id)}`, { checkpoint: c.env_steps })} title="Inspect episodes of this checkpoint">${count(c.env_steps)}</a></td><td class="num">${value(c.score)}</td><td>${c.best && html`<span class="chip">★ best</span> `}${c.last && html`<span class="chip">last</span>`}</td></tr>`)}</tbody></table>`;
}

const STAGES = { test: "Held-out test", eval: "Evaluated later, by the button or gsolve eval", failed_test: "Tests that did not reach the threshold", comparison: "Greedy and sampled actions compared", curriculum: "Stages of the curriculum", val: "Validation" };
const WORST_OF = 10;

export function Evaluations({ detail, run }) {
  if (!detail.evaluations.length) return html`<p class="empty">No evaluation yet.</p>`;
  const stages = [...new Set([...Object.keys(STAGES), ...detail.evaluations.map((e) => e.stage ?? "val")])];
  const kept = new Set(run.checkpoints.map((c) => c.env_steps));
  const known = stages.map((stage) => [stage, STAGES[stage] ?? stage, detail.evaluations.filter((e) => (e.stage ?? "val") === stage)]);
  const worst = (e) => (canWrite() && kept.has(e.env_steps) ? html`<a href=${watchHref(run.id, { checkpoint: e.env_steps, n: WORST_OF, seed: e.seed, greedy: e.greedy })} title=${`Play ${WORST_OF} episodes of this checkpoint and inspect the one with the lowest return`}>Inspect worst</a>` : "");
  return known.filter(([, , rows]) => rows.length).map(([stage, title, rows]) => html`<section key=${stage} class="panel block"><header><h2>${title}</h2><span class="quiet">${rows.length}</span></header><div class="body scroll" tabindex="0"><table class="evaluations"><thead><tr>${["env steps", "mean", "std", "stderr", "min", "max", "length", "episodes"].map((h) => html`<th key=${h} class="num">${h}</th>`)}<th>actions</th><th>when</th><th><span class="visually-hidden">inspect</span></th></tr></thead>
    <tbody>${[...rows].reverse().map((e, i) => html`<tr key=${i}><td class="num">${count(e.env_steps)}</td>${["mean", "std", "stderr", "min", "max", "length_mean"].map((k) => html`<td key=${k} class="num">${value(e[k])}</td>`)}<td class="num">${count(e.episodes)}</td><td>${e.greedy === undefined ? "" : e.greedy ? "greedy" : "sampled"}</td><td class="quiet">${ago(e.at)}</td><td>${worst(e)}</td></tr>`)}</tbody></table></div></section>`);
}

export function Config({ detail, onlyChanged = false }) {
  const [text, setText] = useState("");
  const changed = detail.changed;
  const diff = changed === null ? html`<p class="quiet">There is no shipped config of this name to compare with.</p>`
    : Object.keys(changed).length === 0 ? html`<p class="quiet">Nothing: the shipped config as it is.</p>`
    : html`<table><thead><tr><th>field</th><th>shipped</th><th>this run</th></tr></thead><tbody>${Object.entries(changed).map(([name, pair]) => html`<tr key=${name}><td class="mono">${name}</td><td class="mono quiet">${configText(pair?.[0])}</td><td class="mono"><b>${configText(pair?.[1])}</b></td></tr>`)}</tbody></table>`;
  if (onlyChanged) return diff;
  const rows = Object.entries(detail.config ?? {}).filter(([name, v]) => `${name} ${configText(v)}`.toLowerCase().includes(text.trim().toLowerCase()));
  return html`<section class="panel block"><header><h2>Changed from the shipped config</h2></header><div class="body scroll" tabindex="0">${diff}</div></section>
    <section class="panel block"><header><h2>All fields</h2><span class="grow"></span><input type="search" placeholder="Search the fields" aria-label="Search the fields" value=${text} onInput=${(e) => setText(e.target.value)} /></header>
    <div class="body scroll" tabindex="0"><table class="config"><tbody>${rows.map(([name, v]) => html`<tr key=${name} class=${name in (changed ?? {}) ? "changed" : ""}><td class="mono">${name}</td><td class="mono">${name === "spec" ? html`<details><summary>${Object.keys(v ?? {}).length} entries</summary><pre>${JSON.stringify(v, null, 2)}</pre></details>` : configText(v)}</td></tr>`)}</tbody></table></div></section>`;
}

export function Log({ text }) {
  const box = useRef(null);
  const [wanted, setWanted] = useState("");
  const follows = useRef(true);
  useEffect(() => { if (follows.current && box.current) box.current.scrollTop = box.current.scrollHeight; }, [text]);
  const lines = wanted.trim() ? text.split("\n").filter((line) => line.toLowerCase().includes(wanted.trim().toLowerCase())).join("\n") : text;
  return html`<section class="panel block"><header><h2>Log</h2><span class="grow"></span><input type="search" placeholder="Search the log" aria-label="Search the log" value=${wanted} onInput=${(e) => setWanted(e.target.value)} /></header>
    <pre class="log" ref=${box} tabindex="0" role="log" aria-label="Log" onScroll=${(e) => { follows.current = e.target.scrollHeight - e.target.scrollTop - e.target.clientHeight < 40; }}>${lines || "nothing yet"}</pre></section>`;
}

function Video({ video, id, run }) {
  const url = apiUrl(`runs/${encodeURIComponent(id)}/videos/${encodeURIComponent(video.name)}`);
  const checkpoint = run?.checkpoints.find((c) => c.env_steps === video.env_steps);
  const returns = Array.isArray(video.returns) && video.returns.length ? `return ${video.returns.map(value).join(", ")}` : checkpoint?.score !== null && checkpoint ? `validation ${value(checkpoint.score)}` : "";
  const facts = [video.env_steps === null ? "" : `checkpoint ${count(video.env_steps)}`, video.seed === null ? "" : `seed ${video.seed}`, returns].filter(Boolean).join(", ");
  return html`<figure class="panel video">${video.kind.startsWith("video") ? html`<video controls loop muted playsinline preload="metadata" src=${url} aria-label=${facts || video.name}></video>` : html`<img src=${url} alt=${facts || video.name} loading="lazy" />`}<figcaption class="row"><span title=${video.name}>${facts || video.name}</span><span class="grow"></span><span class="quiet">${bytes(video.bytes)}</span><a href=${url} download=${video.name}>save</a></figcaption></figure>`;
}

export function Videos({ detail, id, run }) {
  if (!detail.videos.length) return html`<p class="empty">No videos. <b>More</b>, <b>Record a video</b> makes one, or <code>gsolve video ${id}</code>.</p>`;
  return html`<div class="panels">${detail.videos.map((video) => html`<${Video} key=${video.name} video=${video} id=${id} run=${run} />`)}</div>`;
}

/** The newest video with what it shows; without one, where to watch the agent. */
export function NewestVideo({ detail, run }) {
  const [video] = detail.videos;
  if (video) return html`<${Video} video=${video} id=${run.id} run=${run} />`;
  if (!run.checkpoints.length || !canWrite()) return null;
  return html`<section class="panel"><header><h2>Watch</h2></header><div class="body"><p><a href=${watchHref(run.id, { checkpoint: detail.is_alive ? "@last" : "@best" })}>Play an episode of the ${detail.is_alive ? "newest" : "best"} checkpoint</a> in the inspector.</p></div></section>`;
}

/** What the folder of the run takes on the disk. */
export function Size({ id }) {
  const [files, setFiles] = useState(null);
  useEffect(() => { get(`runs/${encodeURIComponent(id)}/files`).then(setFiles, () => {}); }, [id]);
  if (!files) return null;
  const parts = Object.entries(files.parts).sort(([, a], [, b]) => b - a);
  return html`<section class="panel"><header><h2>On the disk</h2><span class="grow"></span><b>${bytes(files.bytes)}</b></header>${parts.length > 0 && html`<div class="body"><dl class="pairs">${parts.map(([name, size]) => html`<dt key=${`${name}t`}>${name}</dt><dd key=${`${name}d`}>${bytes(size)}</dd>`)}</dl></div>`}</section>`;
}

export function Machine({ detail }) {
  const pairs = (title, values) => html`<section class="panel block"><header><h2>${title}</h2></header><div class="body"><dl class="pairs">${Object.entries(values).map(([k, v]) => html`<dt key=${`${k}t`}>${k}</dt><dd key=${`${k}d`} class="mono">${typeof v === "string" ? v : configText(v)}</dd>`)}</dl></div></section>`;
  return html`${pairs("Machine", detail.machine)}${pairs("Versions", detail.versions)}${Object.keys(detail.git).length > 0 && pairs("Git", detail.git)}
    <section class="panel block"><header><h2>Command</h2></header><div class="body"><pre class="scroll" tabindex="0">${detail.command.join(" ")}</pre>${detail.resumed.map((r, i) => html`<p key=${i} class="quiet">resumed ${ago(r.at)} from ${short(r.from_env_steps)} env steps</p>`)}</div></section>`;
}
