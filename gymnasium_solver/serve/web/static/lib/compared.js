// What the page that compares asks, from its address. Imports nothing (see early.js).
export const VAL = "val/roll/ep_rew/mean";
export const MOST = 200;  // runs in one comparison, as the server has it

export const idsOf = (query) => (query.get("runs") ?? "").split(",").filter(Boolean);

export const axesOf = (query) => ({ x: query.get("x") ?? "env_steps", smooth: Number(query.get("smooth") ?? 0), logX: query.get("logx") === "1", logY: query.get("logy") === "1" });

/** What the server needs to know to form the groups. */
export const groupingOf = (query, ids) => {
  const by = query.get("by") ?? "config";
  const hand = by === "hand" ? { in: query.get("in") ?? "", names: query.get("names") ?? "" } : {};
  return { runs: ids, by, ...hand, ignore: query.get("ignore") ?? "" };
};

export const curvesOf = (grouping, metric, axes) => ({ ...grouping, x: axes.x, smooth: axes.smooth || undefined, metrics: [metric], points: 300 });
