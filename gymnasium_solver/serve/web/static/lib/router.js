// The address is the state: `place` holds the path below the base and the query.
import { signal } from "../vendor/ui.js";

const base = new URL(document.baseURI).pathname;

function read() {
  const path = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : "";
  return { path: `/${path}`, query: new URLSearchParams(location.search) };
}

export const place = signal(read());
addEventListener("popstate", () => { place.value = read(); });

/** "runs/a1b2" with {x: "wall_s"} to an address; empty values are left out. */
export function href(path, query = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    params.set(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  const text = params.toString().replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3A", ":");
  return base + path.replace(/^\//, "") + (text ? `?${text}` : "");
}

export function go(path, query = {}, { replace = false } = {}) {
  const address = href(path, query);
  if (address === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  place.value = read();
  if (!replace) scrollTo(0, 0);
}

/** Change some arguments of this address; `replace` keeps the history short while typing. */
export function setQuery(changes, { replace = true } = {}) {
  const query = Object.fromEntries(place.value.query);
  go(place.value.path, { ...query, ...changes }, { replace });
}

// Links within the app change the place without loading the page again.
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!link || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  const isPage = url.origin === location.origin && url.pathname.startsWith(base)
    && !/^(api|static)\//.test(url.pathname.slice(base.length));
  if (!isPage) return;
  event.preventDefault();
  if (url.pathname + url.search !== location.pathname + location.search) {
    history.pushState(null, "", url.pathname + url.search);
    place.value = read();
    scrollTo(0, 0);
  }
});
