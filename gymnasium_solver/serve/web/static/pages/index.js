// The pages: path, title in the navigation (none: not listed), module. The default export of a
// module is a component; it is given `params` (parts of the path) and `query`.
export const PAGES = [
  { path: "/", nav: "Runs", load: () => import("./runs.js") },
  { path: "/runs/:run", load: () => import("./run.js") },
  { path: "/experiments", also: "/sweeps", nav: "Experiments", load: () => import("./experiments.js") },
  { path: "/experiments/:experiment", load: () => import("./experiment.js") },
  { path: "/sweeps/:sweep", load: () => import("./sweep.js") },
  { path: "/inspect", nav: "Inspect", load: () => import("./inspect.js") },
  { path: "/inspect/:run", load: () => import("./inspect.js") },
  { path: "/compare", nav: "Compare", load: () => import("./compare.js") },
  { path: "/start", nav: "Start", load: () => import("./start.js") },
];

/** The module of a page; `page.module` from then on. */
export async function open(page) {
  page.module ??= await page.load();
  return page.module;
}

/** The page of a path and the values of its parts. */
export function match(path) {
  const parts = path === "/runs" ? [] : path.split("/").filter(Boolean);  // runs are the first page
  for (const page of PAGES) {
    const wanted = page.path.split("/").filter(Boolean);
    if (wanted.length !== parts.length) continue;
    const params = {};
    const fits = wanted.every((part, i) => {
      if (!part.startsWith(":")) return part === parts[i];
      params[part.slice(1)] = decodeURIComponent(parts[i]);
      return true;
    });
    if (fits) return { page, params };
  }
  return null;
}
