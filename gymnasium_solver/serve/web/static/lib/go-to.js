// The command palette (Ctrl-K) and the keys that lead from page to page (g r, g e, ...).
import { html, signal, useEffect, useMemo, useRef, useState } from "../vendor/ui.js";
import { canWrite, get } from "./api.js";
import { drawerOpen, followJobs } from "./jobs.js";
import { Dialog, helpOpen, isTyping } from "./parts.js";
import { go } from "./router.js";
import { name, refresh, runs, shortId, title } from "./runs-store.js";
import { selectedIds } from "./selection.js";
import { toggleTheme } from "./theme.js";

const isOpen = signal(false);
const openJobs = () => { drawerOpen.value = true; followJobs(); };

/** [keys, what is shown, what it does, whether it needs the right to change something] */
const PLACES = [
  ["g r", "Runs", () => go("/")], ["g e", "Experiments and sweeps", () => go("experiments")], ["g c", "Compare", () => go("compare")],
  ["g i", "Inspect", () => go("inspect")], ["g s", "Start a training", () => go("start"), true], ["g j", "Jobs", openJobs],
];
export const PLACE_KEYS = [["Ctrl-K", "go to a run, a page, a config; do something"], ...PLACES.map(([keys, text]) => [keys, text])];

function actions() {
  const chosen = [...selectedIds()];
  return [
    ...(chosen.length ? [["", `Compare the ${chosen.length} selected runs`, () => go("compare", { runs: chosen.slice(0, 200) })]] : []),
    ["", "Show runs that are training", () => go("/", { q: "status=running" })],
    ["", "Show solved runs", () => go("/", { q: "solved" })],
    ["", "Switch between light and dark", toggleTheme],
    ["?", "Keys of this page", () => { helpOpen.value = true; }],
  ];
}

let pressed = "";
let since = 0;
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); isOpen.value = !isOpen.value; return; }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) { pressed = ""; return; }
  const keys = pressed === "g" && Date.now() - since < 1500 ? `g ${event.key}` : "";
  pressed = event.key;
  since = Date.now();
  const found = PLACES.find(([k, , , writes]) => k === keys && (!writes || canWrite()));
  if (!found) return;
  // The pages have keys of one letter; the second one here is not theirs.
  event.preventDefault();
  event.stopImmediatePropagation();
  pressed = "";
  found[2]();
}, { capture: true });

const MOST = 12;
let configs = null;

export function Palette() {
  return isOpen.value ? html`<${Open} close=${() => { isOpen.value = false; }} />` : null;
}

function Open({ close }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [, loadedConfigs] = useState(0);
  const list = useRef(null);
  useEffect(() => {
    refresh();
    if (!configs && canWrite()) get("configs").then((got) => { configs = got.configs; loadedConfigs(1); }, () => {});
  }, []);
  const found = useMemo(() => entries(text), [text, runs.value, configs]);
  useEffect(() => { list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" }); }, [at, found]);
  const take = (entry) => { close(); entry?.act(); };
  const onKey = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); setAt((at + step + found.length) % (found.length || 1)); }
    if (event.key === "Enter") { event.preventDefault(); take(found[at]); }
  };
  return html`<${Dialog} title="Go to" onClose=${close}><div class="palette">
    <input type="search" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant=${found.length ? `palette-${at}` : null} aria-label="Go to a run, a page or a config" placeholder="A run, a page, a config, an action" autofocus autocomplete="off" spellcheck=${false} value=${text} onInput=${(e) => { setText(e.target.value); setAt(0); }} onKeyDown=${onKey} />
    <ul id="palette-list" class="options" role="listbox" aria-label="Found" ref=${list}>${found.map((entry, i) => html`<li key=${i} id=${`palette-${i}`} role="option" aria-selected=${i === at} onMouseMove=${() => setAt(i)} onClick=${() => take(entry)}><span class="what">${entry.text}</span><span class="quiet">${entry.about}</span></li>`)}</ul>
    ${found.length === 0 && html`<p class="quiet">Nothing is called that.</p>`}</div><//>`;
}

function entries(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (t) => words.every((w) => t.toLowerCase().includes(w));
  const pages = [...PLACES.filter(([, , , writes]) => !writes || canWrite()), ...actions()].filter(([, t]) => fits(t)).map(([keys, t, act]) => ({ text: t, about: keys, act }));
  const own = [];
  const newest = [...runs.value.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
  for (const run of newest) {
    if (own.length >= (words.length ? MOST : 4)) break;
    if (fits(`${run.id} ${name(run)} ${run.status} ${run.tags.join(" ")}`)) own.push({ text: title(run), about: `run · ${title(run) === run.id ? name(run) : shortId(run.id)}`, act: () => go(`runs/${encodeURIComponent(run.id)}`) });
  }
  const startable = words.length && configs ? configs.filter((c) => fits(`train start ${c.name} ${c.description}`)).slice(0, 5).map((c) => ({ text: `Train ${c.name}`, about: "config", act: () => go("start", { config: c.name }) })) : [];
  return words.length ? [...own.slice(0, 6), ...pages, ...startable, ...own.slice(6)].slice(0, MOST) : [...pages, ...own].slice(0, MOST + 4);
}
