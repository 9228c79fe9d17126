// Ask again every now and then, while the page is shown; and a clock that goes on.
import { useEffect, useRef, useState } from "../vendor/ui.js";

export function useRepeated(action, wait) {
  const current = useRef(action);
  current.current = action;
  useEffect(() => {
    let timer = 0;
    const turn = async () => {
      if (!document.hidden) await current.current();
      timer = setTimeout(turn, wait);
    };
    timer = setTimeout(turn, wait);
    return () => clearTimeout(timer);
  }, [wait]);
}

/** The time now, which goes on every second while something trains. */
export function useClock(isRunning) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!isRunning) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isRunning]);
  return isRunning ? now : Date.now();
}
