// A button that opens a short list of actions: links and buttons as its children.
import { html, useEffect, useRef } from "../vendor/ui.js";

export function Menu({ label, title, children }) {
  const ref = useRef(null);
  useEffect(() => {
    const close = () => { ref.current.open = false; };
    const onDown = (event) => { if (!ref.current.contains(event.target)) close(); };
    const onKey = (event) => {
      if (event.key !== "Escape" || !ref.current.open) return;
      close();
      ref.current.querySelector("summary").focus();
    };
    addEventListener("pointerdown", onDown);
    addEventListener("keydown", onKey);
    return () => { removeEventListener("pointerdown", onDown); removeEventListener("keydown", onKey); };
  }, []);
  return html`<details class="menu" ref=${ref}><summary class="button" title=${title}>${label}</summary>
    <div class="menu-list" onClick=${(event) => { if (event.target.closest("a, button")) ref.current.open = false; }}>${children}</div></details>`;
}
