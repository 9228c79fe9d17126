// Asks what the first page will need before the modules of the program are loaded, which takes longer
// than the answers. A plain script for that reason; lib/early.js has its functions for the modules.
(() => {
  const answers = new Map();  // address -> the answer, null if there was none

  function apiUrl(path, params = {}) {
    const url = new URL(`api/${path}`, document.baseURI);
    for (const [name, value] of Object.entries(params)) {
      if (value === undefined || value === null || value === "") continue;
      url.searchParams.set(name, Array.isArray(value) ? value.join(",") : String(value));
    }
    return url;
  }

  function ask(path, params) {
    const { href } = apiUrl(path, params);
    answers.set(href, fetch(href).then((response) => (response.ok ? response.json() : null)).catch(() => null));
  }

  /** The answer to a question that was asked, once; undefined if it was not. */
  function taken(url) {
    const answer = answers.get(url.href);
    answers.delete(url.href);
    return answer;
  }

  const VAL = "val/roll/ep_rew/mean";
  const MOST = 200;  // runs in one comparison, as the server has it
  const idsOf = (query) => (query.get("runs") ?? "").split(",").filter(Boolean);
  const axesOf = (query) => ({ x: query.get("x") ?? "env_steps", smooth: Number(query.get("smooth") ?? 0), logX: query.get("logx") === "1", logY: query.get("logy") === "1" });

  /** What the server needs to know to form the groups of a comparison. */
  function groupingOf(query, ids) {
    const by = query.get("by") ?? "config";
    const hand = by === "hand" ? { in: query.get("in") ?? "", names: query.get("names") ?? "" } : {};
    return { runs: ids, by, ...hand, ignore: query.get("ignore") ?? "" };
  }

  const curvesOf = (grouping, metric, axes) => ({ ...grouping, x: axes.x, smooth: axes.smooth || undefined, metrics: [metric], points: 300 });

  globalThis.gsolveFirst = { apiUrl, taken, VAL, MOST, idsOf, axesOf, groupingOf, curvesOf };

  if (location.hash) return;  // a token logs in first
  const page = location.pathname.slice(new URL(document.baseURI).pathname.length);
  const query = new URLSearchParams(location.search);
  const ids = idsOf(query).slice(0, MOST);
  ask("session");
  if (page === "") ask("runs");
  if (page === "compare" && ids.length && query.get("filter") === null) ask("groups", curvesOf(groupingOf(query, ids), query.get("metric") ?? VAL, axesOf(query)));
})();
