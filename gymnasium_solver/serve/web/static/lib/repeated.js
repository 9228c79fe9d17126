// Ask again every now and then, while the page is shown.
import { useEffect, useRef } from "../vendor/ui.js";

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
