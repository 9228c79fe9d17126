// Numbers and times as text.
/** 12,345.6: not by Intl, which takes 60 ms to start. */
const grouped = (n) => {
  const [whole, rest] = String(n).split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? `.${rest}` : "");
};

export const count = (n) => (n === null || n === undefined ? "–" : grouped(n));

/** 1.2M, 340k, 12: for axes and narrow columns. */
export function short(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  const size = Math.abs(n);
  if (size >= 1e9) return `${trim(n / 1e9)}B`;
  if (size >= 1e6) return `${trim(n / 1e6)}M`;
  if (size >= 1e4) return `${trim(n / 1e3)}k`;
  if (size >= 1000) return grouped(Math.round(n));
  return trim(n);
}

/** The same for the ticks of an axis, which share their suffix. */
export function tick(n, largest) {
  if (Math.abs(largest) >= 1e9) return n === 0 ? "0" : `${trim(n / 1e9)}B`;
  if (Math.abs(largest) >= 1e6) return n === 0 ? "0" : `${trim(n / 1e6)}M`;
  if (Math.abs(largest) >= 1e4) return n === 0 ? "0" : `${trim(n / 1e3)}k`;
  return value(n);
}

/** Up to four significant digits. */
export function value(n) {
  if (n === null || n === undefined) return "–";
  if (typeof n !== "number") return String(n);
  if (!Number.isFinite(n)) return String(n);
  const size = Math.abs(n);
  if (n !== 0 && (size < 1e-3 || size >= 1e7)) return n.toExponential(2).replace("e+", "e");
  if (size >= 1000) return grouped(Number(n.toFixed(1)));
  return String(Number(n.toPrecision(4)));
}

/** A value of a field in a narrow cell: 0.0003, 100k, lin_0.001. */
export function fieldText(v, longest = 24) {
  if (typeof v === "number") return Math.abs(v) >= 10_000 ? short(v) : String(Number(v.toPrecision(4)));
  const text = configText(v);
  return text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
}

const trim = (n) => String(Number(n.toPrecision(3)));

export function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 9.95) return `${s.toFixed(1)} s`;
  const whole = Math.round(s); // first, or 119.6 s would be 1 min 60 s
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A standard error with the decimals of its mean: 0.0555 ± 0.0229, 487.3 ± 2.1. */
export function spread(error, mean) {
  if (error === null || error === undefined) return "";
  const text = error.toFixed((/\.(\d+)$/.exec(value(mean))?.[1] ?? "").length);
  return Number(text) === 0 && error > 0 ? String(Number(error.toPrecision(1))) : text;
}

export function ago(iso, now = Date.now()) {
  const then = Date.parse(iso);
  if (!Number.isFinite(then)) return "–";
  const s = Math.max(0, (now - then) / 1000);
  if (s < 60) return "just now";
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ago`;
  if (s < 30 * 86_400) return `${Math.floor(s / 86_400)} d ago`;
  return iso.slice(0, 10);
}

export function bytes(n) {
  if (n < 1000) return `${n} B`;
  if (n < 1e6) return `${trim(n / 1e3)} kB`;
  return `${trim(n / 1e6)} MB`;
}

/** A value of a config as in YAML. */
export function configText(v) {
  if (v === null || v === undefined) return "null";
  if (typeof v === "string") return v;
  if (typeof v === "object" && Object.keys(v).join() === "start,end" && v.end === 0) return `lin_${v.start}`;
  return JSON.stringify(v, null, 1).replace(/\n\s*/g, " ").replace(/([[{]) /g, "$1").replace(/ ([\]}])/g, "$1");
}
