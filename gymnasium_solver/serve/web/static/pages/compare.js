import { html } from "../vendor/ui.js";
export default function Page() { return html`<h1>compare</h1>`; }
