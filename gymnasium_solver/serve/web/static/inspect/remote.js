// Episodes of the server: opening one, following it while it is played, asking for new ones.
import { get, getResponse, post } from "../lib/api.js";
import { EpisodeData, Frames } from "./data.js";

const POLL_MS = 250;

const base = (run, episode = "") => `runs/${encodeURIComponent(run)}/episodes${episode ? `/${encodeURIComponent(episode)}` : ""}`;
const bytes = async (path, params) => (await getResponse(path, params)).arrayBuffer();

export const listInspected = () => get("inspect");
/** What the player is doing before the first frame, in words; "" when it is ready. */
export const playerPhase = async () => (await get("player")).phase;
export const listEpisodes = (run) => get(base(run));
export const playEpisode = (run, wanted) => post(base(run), wanted);
export const stopEpisode = (run, episode) => post(`${base(run, episode)}/stop`);
export const deleteEpisode = (run, episode) => post(`${base(run, episode)}/delete`);
export const askWhy = (run, episode, wanted) => post(`${base(run, episode)}/saliency`, wanted);
export const difference = (run, episode, other) => get(`${base(run, episode)}/difference`, { with: other });
export const csvUrl = (run, episode) => new URL(`api/${base(run, episode)}/csv`, document.baseURI).href;
export const pageUrl = (run, episode) => new URL(`api/${base(run, episode)}/page`, document.baseURI).href;
export const frameUrl = (run, episode, t, view = "render") => new URL(`api/${base(run, episode)}/frame/${view}/${t}`, document.baseURI).href;

/** The numbers and frames of an episode. */
export async function openEpisode(run, episode) {
  const path = base(run, episode);
  const facts = await get(path);
  const data = new EpisodeData(facts);
  const frames = new Frames((view, chunk) => bytes(`${path}/frames/${view}/${chunk}`), facts);
  data.addRows(await bytes(`${path}/columns`));
  data.info = await get(`${path}/info`);
  if (facts.has_derived) data.setDerived(await bytes(`${path}/derived`));
  return { data, frames };
}

/** Read on while an episode is played; `onChange` after each piece. Returns a function that stops. */
export function followEpisode(run, episode, data, onChange) {
  const path = base(run, episode);
  let isOver = false;
  async function round() {
    if (isOver) return;
    try {
      const facts = await get(path);
      const rows = await bytes(`${path}/columns`, { from: data.n });
      const info = await get(`${path}/info`, { from: data.info.length });
      if (isOver) return;
      data.addRows(rows);
      data.info.push(...info);
      if (facts.status !== "running") {
        if (facts.has_derived) data.setDerived(await bytes(`${path}/derived`));
        data.notable = facts.notable ?? [];
        data.parts = facts.reward_parts ?? {};
        isOver = true;
      }
      data.facts = facts;
      onChange(facts);
    } catch (error) {
      if (error.status === 404) { isOver = true; return; }
    }
    if (!isOver) setTimeout(round, POLL_MS);
  }
  if (!data.isDone) setTimeout(round, POLL_MS);
  return () => { isOver = true; };
}
