// A chart as PNG, SVG or CSV.
import { colour, dash } from "./palette.js";
import { cssVar } from "./theme.js";
import { short, value as valueText } from "./format.js";

export function download(name, type, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const escape = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
const nice = (text) => text.replace(/[^\w.-]+/g, "-").replace(/^-|-$/g, "");

/** A drawing of its own, not a copy of the canvas: lines stay lines. */
export function svgOf(u, lines, { title, xLabel, level }) {
  const width = u.width, top = 34, legend = 18 * lines.filter((l) => !l.faint).length + 10;
  const height = u.height + top + legend + 18;
  const ratio = devicePixelRatio, box = { l: u.bbox.left / ratio, t: u.bbox.top / ratio + top, w: u.bbox.width / ratio, h: u.bbox.height / ratio };
  const px = (v) => box.l + u.valToPos(v, "x"), py = (v) => box.t + u.valToPos(v, "y");
  const out = [`<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="11">`,
    `<rect width="100%" height="100%" fill="${cssVar("--panel")}"/><text x="12" y="20" font-size="13" font-weight="600" fill="${cssVar("--text")}">${escape(title)}</text>`,
    `<clipPath id="box"><rect x="${box.l}" y="${box.t}" width="${box.w}" height="${box.h}"/></clipPath>`];
  const grid = cssVar("--grid"), quiet = cssVar("--quiet");
  (u.axes[0]._splits ?? []).forEach((v) => { if (v !== null && v >= u.scales.x.min && v <= u.scales.x.max) out.push(`<line x1="${px(v)}" x2="${px(v)}" y1="${box.t}" y2="${box.t + box.h}" stroke="${grid}"/><text x="${px(v)}" y="${box.t + box.h + 15}" text-anchor="${px(v) > width - 24 ? "end" : "middle"}" fill="${quiet}">${escape(short(v))}</text>`); });
  (u.axes[1]._splits ?? []).forEach((v) => { if (v !== null && v >= u.scales.y.min && v <= u.scales.y.max) out.push(`<line x1="${box.l}" x2="${box.l + box.w}" y1="${py(v)}" y2="${py(v)}" stroke="${grid}"/><text x="${box.l - 6}" y="${py(v) + 4}" text-anchor="end" fill="${quiet}">${escape(valueText(v))}</text>`); });
  out.push(`<text x="${box.l + box.w / 2}" y="${box.t + box.h + 30}" text-anchor="middle" fill="${quiet}">${escape(xLabel)}</text><g clip-path="url(#box)">`);
  if (level !== null && level !== undefined) out.push(`<line x1="${box.l}" x2="${box.l + box.w}" y1="${py(level)}" y2="${py(level)}" stroke="${quiet}" stroke-dasharray="6 4"/>`);
  const ok = (v) => v !== null && v !== undefined;
  for (const line of lines) {
    const stroke = colour(line.colour);
    if (line.lo && line.hi) {
      const at = line.x.map((x, i) => [x, line.lo[i], line.hi[i]]).filter(([, a, b]) => ok(a) && ok(b));
      const path = [...at.map(([x, , b]) => `${px(x).toFixed(1)},${py(b).toFixed(1)}`), ...at.reverse().map(([x, a]) => `${px(x).toFixed(1)},${py(a).toFixed(1)}`)];
      out.push(`<polygon points="${path.join(" ")}" fill="${stroke}" fill-opacity="0.16"/>`);
    }
    const points = line.x.map((x, i) => (ok(line.y[i]) ? `${px(x).toFixed(1)},${py(line.y[i]).toFixed(1)}` : null)).filter(Boolean);
    out.push(`<polyline points="${points.join(" ")}" fill="none" stroke="${stroke}" stroke-width="${line.width ?? 1.75}" stroke-opacity="${line.faint ? 0.32 : 1}" stroke-dasharray="${dash(line.colour)?.join(" ") ?? ""}" stroke-linejoin="round"/>`);
  }
  out.push("</g>");
  lines.filter((l) => !l.faint).forEach((line, i) => {
    const y = box.t + box.h + 48 + 18 * i;
    out.push(`<line x1="${box.l}" x2="${box.l + 22}" y1="${y - 4}" y2="${y - 4}" stroke="${colour(line.colour)}" stroke-width="3" stroke-dasharray="${dash(line.colour)?.join(" ") ?? ""}"/><text x="${box.l + 30}" y="${y}" fill="${cssVar("--text")}">${escape(line.label)}</text>`);
  });
  out.push("</svg>");
  return out.join("");
}

export const saveSvg = (u, lines, about) => download(`${nice(about.title)}.svg`, "image/svg+xml", [svgOf(u, lines, about)]);

export async function savePng(u, lines, about) {
  const svg = svgOf(u, lines, about);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.width * 2;
  canvas.height = image.height * 2;
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  context.drawImage(image, 0, 0);
  const blob = await new Promise((resolve) => { canvas.toBlob(resolve, "image/png"); });
  download(`${nice(about.title)}.png`, "image/png", [blob]);
}

const cell = (v) => {
  if (v === null || v === undefined) return "";
  const text = String(v);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export const csvText = (heads, rows) => [heads, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";

export const saveCsv = (name, heads, rows) => download(`${nice(name)}.csv`, "text/csv", [csvText(heads, rows)]);
