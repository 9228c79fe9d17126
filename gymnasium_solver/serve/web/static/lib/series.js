// Curves of runs for the panels on a page. Requests of one moment become one call.
import { useEffect, useState } from "../vendor/ui.js";
import { get } from "./api.js";

const waiting = new Map();

/** [{run, metric, x, y, lo, hi, smooth, n}] of some runs and one metric. */
export function loadSeries(runs, metric, options) {
  const key = JSON.stringify([runs, options]);
  let group = waiting.get(key);
  if (!group) {
    group = { metrics: new Map() };
    waiting.set(key, group);
    setTimeout(async () => {
      waiting.delete(key);
      const names = [...group.metrics.keys()];
      const step = Math.max(1, Math.floor(300 / runs.length));
      for (let i = 0; i < names.length; i += step) {
        const part = names.slice(i, i + step);
        try {
          const got = await get("series", { runs, metrics: part, ...options });
          for (const name of part) group.metrics.get(name).forEach((w) => w.resolve(got.series.filter((s) => s.metric === name)));
        } catch (error) {
          for (const name of part) group.metrics.get(name).forEach((w) => w.reject(error));
        }
      }
    }, 15);
  }
  return new Promise((resolve, reject) => {
    const list = group.metrics.get(metric) ?? [];
    list.push({ resolve, reject });
    group.metrics.set(metric, list);
  });
}

/** The curves of one metric; loaded again when `version` changes, never while `active` is false. */
export function useSeries(runs, metric, options, version, active = true) {
  const [state, setState] = useState({ series: [], error: "", loaded: false });
  const key = JSON.stringify([runs, metric, options]);
  useEffect(() => {
    if (!active || !runs.length) return undefined;
    let isCurrent = true;
    loadSeries(runs, metric, options).then(
      (series) => isCurrent && setState({ series, error: "", loaded: true }),
      (error) => isCurrent && setState((old) => ({ ...old, error: error.message, loaded: true })),
    );
    return () => { isCurrent = false; };
  }, [key, version, active]);
  return state;
}

/** Whether an element has come near the visible part of the page. */
export function useSeen(ref) {
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    if (seen) return undefined;
    const observer = new IntersectionObserver((entries) => { if (entries.some((e) => e.isIntersecting)) setSeen(true); }, { rootMargin: "300px" });
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, [seen]);
  return seen;
}
