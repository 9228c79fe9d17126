// A little Markdown as elements: headings, lists, code, quotes, bold, italic, links. Text never becomes HTML,
// and a link leads to http or https only.
import { html } from "../vendor/ui.js";

const INLINE = /(`[^`]+`)|\*\*(.+?)\*\*|__(.+?)__|\*([^*\s][^*]*?)\*|\[([^\]]+)\]\((https?:\/\/[^\s)]+)\)|(https?:\/\/[^\s<>()]+[^\s<>().,;:!?])/g;

function inline(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    const [whole, code, bold, bold2, italic, label, address, plain] = found;
    if (found.index > end) parts.push(text.slice(end, found.index));
    if (code) parts.push(html`<code>${code.slice(1, -1)}</code>`);
    else if (bold ?? bold2) parts.push(html`<strong>${inline(bold ?? bold2)}</strong>`);
    else if (italic) parts.push(html`<em>${inline(italic)}</em>`);
    else parts.push(html`<a href=${address ?? plain} target="_blank" rel="noopener noreferrer">${label ?? plain}</a>`);
    end = found.index + whole.length;
  }
  return [...parts, text.slice(end)];
}

/** Lines in blocks: [{kind, lines}]. */
function blocks(text) {
  const found = [];
  let fence = null;
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith("```")) { if (fence) fence = null; else { fence = { kind: "pre", lines: [] }; found.push(fence); } continue; }
    if (fence) { fence.lines.push(line); continue; }
    const heading = /^#{1,4}\s+(.*)$/.exec(line), item = /^\s*[-*+]\s+(.*)$/.exec(line), step = /^\s*\d+[.)]\s+(.*)$/.exec(line), quote = /^>\s?(.*)$/.exec(line);
    const [kind, rest] = heading ? ["h", heading[1]] : item ? ["ul", item[1]] : step ? ["ol", step[1]] : quote ? ["quote", quote[1]] : line.trim() ? ["p", line] : ["gap", ""];
    const last = found.at(-1);
    if (last?.kind === kind && kind !== "h") last.lines.push(rest); else found.push({ kind, lines: [rest] });
  }
  return found;
}

export function Markdown({ text }) {
  return html`<div class="markdown">${blocks(text).map(({ kind, lines }) => {
    if (kind === "gap") return null;
    if (kind === "pre") return html`<pre>${lines.join("\n")}</pre>`;
    if (kind === "h") return html`<h3>${inline(lines[0])}</h3>`;
    const items = lines.map((line) => html`<li>${inline(line)}</li>`);
    if (kind === "ul") return html`<ul>${items}</ul>`;
    if (kind === "ol") return html`<ol>${items}</ol>`;
    const words = lines.flatMap((line, i) => (i ? [html`<br />`, ...inline(line)] : inline(line)));
    return kind === "quote" ? html`<blockquote>${words}</blockquote>` : html`<p>${words}</p>`;
  })}</div>`;
}
