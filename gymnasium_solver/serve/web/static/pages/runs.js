import { html } from "../vendor/ui.js";
export default function Runs() { return html`<h1>Runs</h1>`; }
