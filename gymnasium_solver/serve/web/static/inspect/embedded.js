// Episodes inside a document of their own (serve/web/episode_file.py), which has joined these files.
import { EpisodeData, Frames } from "./data.js";
import { EpisodeView, bindKeys, clockKeys } from "./view.js";

const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
function mountEmbedded(root) {
  const given = JSON.parse(root.querySelector("script").textContent);
  const data = new EpisodeData(given.facts);
  data.addRows(bytesOf(given.rows));
  data.setDerived(bytesOf(given.derived));
  data.info = given.info;
  const frames = new Frames(async (view, chunk) => bytesOf(given.packs[view][chunk]), given.facts);
  return new EpisodeView(root.querySelector("div"), data, frames);
}
const mounted = [...document.querySelectorAll(".gsolve-episode")].map(mountEmbedded);
let current = mounted[0];
mounted.forEach((view) => view.root.addEventListener("pointerdown", () => { current = view; }));
if (current) bindKeys(() => clockKeys(() => current));
