// The shell: navigation, theme, login, help, messages; shows the page that the address names.
import { html, render, useEffect, useState } from "./vendor/ui.js";
import { openSession, session, sessionError, login } from "./lib/api.js";
import { PLACE_KEYS, Palette } from "./lib/go-to.js";
import { JobsButton, JobsDrawer, pageTitle } from "./lib/jobs.js";
import { href, place } from "./lib/router.js";
import { liveState } from "./lib/stream.js";
import { theme, toggleTheme } from "./lib/theme.js";
import { Help, Toasts, everywhereKeys, helpOpen } from "./lib/parts.js";
import { PAGES, match, open } from "./pages/index.js";

function App() {
  if (sessionError.value === "login") return html`<${Login} />`;
  if (sessionError.value) return html`<p class="boot" role="alert">${sessionError.value}</p>`;
  if (!session.value) return html`<p class="boot">Loading…</p>`;
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <${Bar} />
    <main id="main" tabindex="-1"><${Page} /></main>
    <${JobsDrawer} /><${Toasts} /><${Help} /><${Palette} />`;
}

everywhereKeys.value = PLACE_KEYS;

const LIVE = { live: "Live", paused: "Paused", waiting: "No connection; trying again", off: "" };

function Bar() {
  const current = place.value.path;
  return html`<header class="bar">
    <a class="brand" href=${href("/")} aria-label="gsolve, runs"><img src="static/icon.svg" alt="" width="20" height="20" /><span>gsolve</span></a>
    <nav aria-label="Pages">${PAGES.filter((page) => page.nav).map((page) => html`
      <a href=${href(page.path)} aria-current=${isCurrent(page, current) ? "page" : null}>${page.nav}</a>`)}
    </nav>
    <span class="grow"></span>
    ${liveState.value !== "off" && html`<span class=${`live ${liveState.value}`} title=${LIVE[liveState.value]}><i></i><span class="wide-only">${LIVE[liveState.value]}</span></span>`}
    ${session.value.read_only && html`<span class="chip">read-only</span>`}
    <span class="quiet wide-only" title=${session.value.root}>${session.value.root.split("/").at(-1)}</span>
    <${JobsButton} />
    <button class="plain" onClick=${toggleTheme} aria-label=${`Switch to the ${theme.value === "dark" ? "light" : "dark"} theme`} title="Theme">${theme.value === "dark" ? "☀" : "☾"}</button>
    <button class="plain" onClick=${() => { helpOpen.value = true; }} aria-label="Help and keys" title="Help (?)">?</button>
  </header>`;
}

const isCurrent = (page, path) =>
  page.path === "/" ? path === "/" || path.startsWith("/runs") : path.startsWith(page.path) || (page.also && path.startsWith(page.also));

function Page() {
  const [tried, setTried] = useState(null);  // {page, error}
  const found = match(place.value.path);
  const page = found?.page;
  const Component = page?.module?.default;
  useEffect(() => {
    if (!page || Component) return;
    open(page).then(() => setTried({ page }), (error) => setTried({ page, error }));
  }, [page]);
  useEffect(() => { pageTitle(Object.values(found?.params ?? {})[0] ?? page?.nav ?? "Not found"); }, [place.value.path]);
  if (!found) return html`<section class="empty"><h1>Not found</h1><p>There is no page ${place.value.path}. <a href=${href("/")}>All runs</a></p></section>`;
  if (Component) return html`<${Component} key=${JSON.stringify(found.params)} params=${found.params} query=${place.value.query} />`;
  if (tried?.page === page && tried.error) return html`<section class="empty" role="alert"><h1>This page cannot be shown</h1><p>${String(tried.error.message)}</p></section>`;
  return html`<p class="boot">Loading…</p>`;
}

function Login() {
  const [failed, setFailed] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    try { await login(new FormData(event.target).get("token").trim()); } catch (error) { setFailed(error.message); }
  };
  return html`<main class="login"><h1>gsolve</h1><form onSubmit=${submit}>
    <label>Token, as printed by <code>gsolve ui</code><input name="token" type="password" autocomplete="off" required autofocus /></label>
    <button class="primary">Open</button>${failed && html`<p class="bad" role="alert">${failed}</p>`}</form></main>`;
}

const first = match(place.value.path)?.page;
if (first) open(first).catch(() => {});  // Page shows why it failed
openSession();
render(html`<${App} />`, document.getElementById("app"));
