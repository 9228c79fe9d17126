// Server-sent events, one connection a tab. It is closed while the tab is hidden: a browser allows
// six connections to a host, and files are read only while somebody looks.
import { effect, signal } from "../vendor/ui.js";
import { apiUrl, session } from "./api.js";

/** "live", "paused" (hidden tab), "waiting" (lost, tries again), "off" (nothing to follow). */
export const liveState = signal("off");

let followers = 0;

/** Whether the server says that there is nothing to follow: another reason than a lost connection. */
async function isMissing(address) {
  const ending = new AbortController();
  try { return (await fetch(address, { signal: ending.signal })).status === 404; } catch { return false; } finally { ending.abort(); }
}

/**
 * Follow topics until the returned function is called.
 * `params()` is asked at every (re)connection, so that it can hold the newest cursor;
 * `handlers` maps the name of an event to a function of its data.
 */
export function follow(params, handlers) {
  let source = null;
  let timer = 0;
  let wait = 500;
  let closed = false;
  followers += 1;

  function open() {
    if (closed || source || document.hidden || !session.value) return;
    source = new EventSource(apiUrl("stream", params()));
    source.onopen = () => { liveState.value = "live"; wait = 500; };
    source.onerror = async () => {
      const address = source.url;
      // A browser tries again by itself unless the server has refused: then it tells nothing more.
      const wasRefused = source.readyState === EventSource.CLOSED && (await isMissing(address));
      stop();
      if (closed) return;
      liveState.value = wasRefused ? "off" : "waiting";
      if (wasRefused) return;
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, 15_000);
    };
    for (const [name, handler] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
    }
  }
  function stop() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }
  function onVisibility() {
    if (document.hidden) { stop(); liveState.value = "paused"; } else open();
  }
  document.addEventListener("visibilitychange", onVisibility);
  const endEffect = effect(() => { if (session.value) open(); });
  return () => {
    closed = true;
    stop();
    endEffect();
    document.removeEventListener("visibilitychange", onVisibility);
    followers -= 1;
    if (followers === 0) liveState.value = "off";
  };
}
