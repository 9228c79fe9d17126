// One episode on the screen: frame, decision, observation, notable steps, charts, table, and its clock.
//
//   const view = new EpisodeView(root, data, frames, { onStep(t), onAction(value) });
//   view.setStep(12); view.play(); view.refresh(); view.destroy();
//
// Two episodes have one clock and the same charts: view.setCompanion(other), where `other` was made with
// {isGuest: true} and shows only its frame, decision and observation.
import { text } from "./data.js";
import { Chart, HeatStrip, h } from "./charts.js";
import { ActionPanel, NotableList, ObsPanel, StepTable, factTable, layerTable } from "./panels.js";

const VIEWS = { render: "Frame", net: "Network's view", model: "Model's view" };

export const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8, 16];

export class EpisodeView {
  constructor(root, data, frames, options = {}) {
    Object.assign(this, { root, data, frames, options, t: 0, speed: 1, isPlaying: false, marks: [], companion: null });
    this.view = frames.has("render") ? "render" : frames.has("net") ? "net" : "text";
    this.why = null;
    // By hand; a step of the address that was not there yet is then no longer wanted.
    this.seek = (t) => { this.isMoved = true; this.pause(); this.setStep(t); };
    this.actions = new ActionPanel(data, options.onAction);
    this.obs = new ObsPanel(data);
    this.notable = new NotableList(data, this.seek);
    this.table = new StepTable(data, this.seek);
    this.charts = options.isGuest ? [] : this.makeCharts();
    root.classList.add("ep");
    const clock = this.makeClock();
    const top = h("div", { class: "ep-top" }, this.makeStage(), h("div", { class: "ep-side" }, this.actions.element, this.obs.element, options.isGuest ? null : this.notable.element));
    const below = h("div", { class: "ep-charts" }, ...this.charts.map((chart) => chart.element));
    root.replaceChildren(...(options.isGuest ? [top] : [clock, top, below]), h("div", { class: "ep-more" }, this.makeTable(), ...this.makeAbout()));
    this.showSpeed();
    this.refresh();
  }

  /** The last step of the clock: of the longer one of two episodes. */
  get end() { return Math.max(this.data.last, this.companion?.data.last ?? 0); }

  /** The state shown: the clock, or the last one if the episode is over before. */
  get own() { return Math.min(this.t, this.data.last); }

  /** Another episode in the same charts, on the same clock; null: none. */
  setCompanion(other) {
    this.companion = other;
    this.refresh();
  }

  // --- parts

  makeStage() {
    const views = Object.entries(VIEWS).filter(([name]) => this.frames.has(name));
    this.viewButtons = views.map(([name, label]) => h("button", { type: "button", "aria-pressed": String(name === this.view), onclick: () => { this.markView(name); this.drawFrame(); } }, label));
    this.zoom = h("select", { "aria-label": "Size of the frame", onchange: () => this.fit() },
      ...[["fit", "fit"], ["1", "1×"], ["2", "2×"], ["3", "3×"], ["4", "4×"], ["6", "6×"]].map(([value, label]) => h("option", { value }, label)));
    this.canvas = h("canvas", { class: "ep-frame", role: "img", "aria-label": "Frame of the step", width: "8", height: "8" });
    this.pre = h("pre", { class: "ep-text" });
    this.tiles = h("p", { class: "ep-tiles quiet" });
    this.whyText = h("p", { class: "ep-why quiet", role: "status" });
    const { facts } = this.data;
    const note = this.view === "text" ? facts.no_frames ?? "" : "";
    const engine = facts.engine?.text ?? facts.note ?? "";
    return h("section", { class: "ep-panel ep-stage", "aria-label": "Frame" },
      h("div", { class: "row" }, h("span", { class: "seg" }, ...this.viewButtons), h("span", { class: "grow" }), this.options.tools ?? null, this.zoom),
      h("div", { class: "ep-screen" }, this.canvas, this.pre), this.tiles, this.whyText, note ? h("p", { class: "quiet" }, note) : null,
      engine ? h("p", { class: facts.note ? "ep-engine warn" : "ep-engine quiet" }, engine) : null);
  }

  makeClock() {
    const button = (label, title, action) => h("button", { type: "button", title, "aria-label": title, onclick: action }, label);
    this.playButton = button("▶", "Play (space)", () => this.toggle());
    this.slider = h("input", { type: "range", min: "0", max: "0", value: "0", step: "1", "aria-label": "Step", class: "ep-slider",
      oninput: () => this.seek(Number(this.slider.value)) });
    this.ticks = h("div", { class: "ep-ticks", "aria-hidden": "true" });
    this.place = h("output", { class: "ep-place" });
    this.speedText = h("span", { class: "ep-speed quiet" });
    this.facts = h("span", { class: "ep-facts ep-wide" });
    return h("div", { class: "ep-clock ep-panel" },
      h("div", { class: "row" },
        button("|◀", "First step (Home)", () => this.seek(0)), button("‹", "Back one step (←)", () => this.seek(this.t - 1)), this.playButton,
        button("›", "Forward one step (→)", () => this.seek(this.t + 1)), button("▶|", "Last step (End)", () => this.seek(this.end)),
        h("span", { class: "ep-wide row" }, button("‹ notable", "Previous notable step (,)", () => this.jump(-1)), button("notable ›", "Next notable step (.)", () => this.jump(1))),
        this.place, this.facts, h("span", { class: "grow" }),
        button("–", "Slower ([)", () => this.changeSpeed(-1)), this.speedText, button("+", "Faster (])", () => this.changeSpeed(1))),
      h("div", { class: "ep-line" }, this.slider, this.ticks));
  }

  makeCharts() {
    const { data } = this;
    const parts = () => Object.keys(data.parts).slice(0, 5).map((name, i) => [name, name, `--c${[3, 4, 5, 6, 7][i]}`, { dash: [2, 2] }]);
    const charts = [
      ["Value and return to go", () => [["value", "value", "--c0"], ["return_to_go", "return to go", "--c1", { dash: [5, 3] }]]],
      ["Reward", () => [["reward", "reward", "--c2", { steps: true }], ...parts()]],
      ["Advantage and TD error", () => [["advantage", "advantage", "--c0"], ["td_error", "TD error", "--c1", { dash: [5, 3] }]]],
      ["Return so far", () => [["return", "return so far", "--c2"]]],
    ];
    if (data.has("entropy") && data.series("entropy").some(Number.isFinite)) charts.push(["Entropy", () => [["entropy", "entropy", "--c3"]]]);
    const made = charts.map(([title, columns]) => new Chart(title, () => this.linesOf(columns()), this.seek));
    if (data.has("imagined")) made.push(this.makeModelChart());
    for (const name of data.columns.keys()) {
      if (name.startsWith("carry ")) made.push(new HeatStrip(`Memory (${name.slice(6)}): units by step`, data, name, this.seek));
    }
    return made;
  }

  /** One number of the observation: as it was, as the model reconstructs it, as it imagines it. */
  makeModelChart() {
    const chosen = h("select", { "aria-label": "Number of the observation", onchange: () => chart.redraw() }, ...this.data.labels("seen").map((label, i) => h("option", { value: String(i) }, label)));
    const kinds = [["seen", "true", "--c0"], ["reconstructed", "reconstructed", "--c1", { dash: [5, 3] }], ["imagined", "imagined", "--c3", { dash: [2, 2] }]];
    const chart = new Chart("What the model imagines", () => this.linesOf(kinds, Number(chosen.value)), this.seek);
    chart.element.firstChild.append(chosen);
    return chart;
  }

  /** Lines of columns [name, label, colour, more], of their i-th number. Of two episodes the colour tells which one it is. */
  linesOf(columns, i = 0) {
    const other = this.companion?.data;
    const of = (data, [name, label, colour, more]) => ({ label, values: data.series(name, i), colour, ...more });
    if (!other) return columns.map((column) => of(this.data, column));
    return [[this.data, "A", "--c0"], [other, "B", "--c1"]].flatMap(([data, letter, colour]) => columns.map(([name, label, , more]) => of(data, [name, `${letter} ${label}`, colour, more])));
  }

  makeTable() {
    const details = h("details", { class: "ep-panel ep-steps" }, h("summary", {}, "Steps as a table"), ...(this.options.tableTools ? [this.options.tableTools] : []), this.table.element);
    details.addEventListener("toggle", () => { if (details.open) { this.table.update(); this.table.show(this.own, true); } });
    this.details = details;
    return details;
  }

  /** The tabs Environment and Model; episodes recorded by older versions have neither. */
  makeAbout() {
    const { environment, model } = this.data.facts;
    const tab = (title, facts, ...more) => facts && h("details", { class: "ep-panel ep-steps ep-about" }, h("summary", {}, title), factTable(facts), ...more);
    return [tab("Environment", environment), tab("Model", model, model && layerTable(model.layers))].filter(Boolean);
  }

  // --- state

  /** After rows, frames or facts were added. */
  refresh() {
    this.slider.max = String(this.end);
    for (const chart of this.charts) chart.update(this.end + 1, this.marks);
    this.drawTicks();
    this.showFacts();
    this.notable.update();
    if (this.details.open) this.table.update();
    this.setStep(this.t);
  }

  /** Lines on the charts: [{t, colour, label}]. */
  setMarks(marks) {
    this.marks = marks;
    this.refresh();
  }

  drawTicks() {
    const last = Math.max(1, this.end);
    const tick = (t, title, kind) => { const mark = h("i", { title, class: kind }); mark.style.left = `${(100 * t) / last}%`; return mark; };
    this.ticks.replaceChildren(...this.data.notable.map(({ step, why }) => tick(step, `${step}: ${why.join(", ")}`, "notable")),
      ...this.marks.map((mark) => tick(mark.t, mark.label, "mark")));
  }

  showFacts() {
    const told = ({ facts }, letter) => {
      const result = facts.result ?? {};
      const words = facts.status === "running" ? "being played …" : result.ended ?? facts.status;
      return [letter, h("span", { class: "chip" }, words), result.return === undefined ? "" : ` return ${text(result.return)} `];
    };
    const other = this.companion?.data;
    this.facts.replaceChildren(...(other ? [...told(this.data, "A "), ...told(other, "B ")] : told(this.data, "")));
    this.facts.dataset.status = this.isDone ? this.data.facts.status : "running";
  }

  setStep(t) {
    this.t = Math.max(0, Math.min(this.end, Math.round(t)));
    const { own } = this;
    this.slider.value = String(this.t);
    this.root.dataset.step = String(own);
    this.place.textContent = `step ${this.t} of ${this.end}`;
    this.slider.setAttribute("aria-valuetext", `step ${this.t}`);
    this.clearWhy();
    this.actions.show(own);
    this.obs.show(own);
    this.notable.show(own);
    for (const chart of this.charts) chart.setStep(this.t);
    if (this.details.open) this.table.show(own, true);
    this.drawFrame();
    this.options.onStep?.(this.t);
  }

  // --- the frame

  markView(view) {
    this.view = view;
    this.viewButtons.forEach((button) => button.setAttribute("aria-pressed", String(button.textContent === VIEWS[view])));
  }

  async drawFrame() {
    const [t, view] = [this.own, this.view];
    this.canvas.hidden = view === "text";
    this.pre.hidden = view !== "text";
    this.tiles.hidden = view === "render" || view === "text";
    if (view === "text") { this.pre.textContent = this.data.text(t) ?? "This environment draws nothing."; this.pre.dataset.step = String(t); return; }
    let bitmap = this.frames.ready(view, t);
    if (!bitmap) {
      try { bitmap = await this.frames.bitmap(view, t); } catch (error) { this.whyText.textContent = error.message; return; }
    }
    if (this.own !== t || this.view !== view) return;  // a newer step was asked for meanwhile
    if (bitmap) this.paint(bitmap, t);
    else if (view !== "render") this.whyText.textContent = "no decision in the last state, so the network was not asked";
    for (let ahead = 1; ahead <= 3; ahead++) {
      if (t + ahead <= this.data.last) this.frames.bitmap(view, t + ahead).catch(() => {});
    }
  }

  paint(bitmap, t) {
    if (this.canvas.width !== bitmap.width || this.canvas.height !== bitmap.height) {
      this.canvas.width = bitmap.width;
      this.canvas.height = bitmap.height;
    }
    this.canvas.getContext("2d").drawImage(bitmap, 0, 0);
    this.canvas.dataset.step = String(t);
    this.canvas.dataset.view = this.view;
    this.fit();
    const tiles = this.data.facts.frames?.[this.view]?.tiles ?? [];
    this.tiles.textContent = tiles.map((tile) => tile.label).join(" · ");
  }

  fit() {
    const { canvas } = this;
    const zoom = this.zoom.value;
    canvas.classList.toggle("fit", zoom === "fit");
    const small = canvas.width < 300;
    canvas.classList.toggle("pixels", small || zoom !== "fit");
    canvas.style.width = zoom === "fit" ? "" : `${canvas.width * Number(zoom)}px`;
    canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
  }

  /** A map or contributions from the worker, for the step shown. */
  async showWhy(why) {
    if (why.step !== this.own) return;
    this.why = why;
    this.whyText.textContent = `${why.method}: ${why.what} = ${text(why.number)}`;
    if (why.contributions) { this.obs.setWhy(why); return; }
    const bytes = Uint8Array.from(atob(why.png), (c) => c.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    if (why.step !== this.own) return;
    this.markView("net");
    this.tiles.hidden = false;
    this.paint(bitmap, this.own);
    this.canvas.dataset.why = why.method;
  }

  clearWhy() {
    if (!this.why) { this.whyText.textContent = ""; return; }
    this.why = null;
    this.whyText.textContent = "";
    delete this.canvas.dataset.why;
    this.obs.setWhy(null);
  }

  // --- the clock

  get isDone() { return this.data.isDone && (this.companion?.data.isDone ?? true); }

  toggle() { if (this.isPlaying) this.pause(); else this.play(); }

  play() {
    if (this.isPlaying) return;
    if (this.t >= this.end && this.isDone) this.setStep(0);
    this.isPlaying = true;
    this.playButton.textContent = "❚❚";
    this.playButton.setAttribute("aria-label", "Pause (space)");
    let before = performance.now();
    let due = 0;
    const tick = (now) => {
      if (!this.isPlaying) return;
      due += ((now - before) / 1000) * (this.data.facts.fps || 30) * this.speed;
      before = now;
      const whole = Math.floor(due);
      if (whole >= 1) {
        due -= whole;
        const next = Math.min(this.end, this.t + whole);
        if (next !== this.t) this.setStep(next);
        else if (this.isDone) { this.pause(); return; }
      }
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() {
    this.isPlaying = false;
    this.playButton.textContent = "▶";
    this.playButton.setAttribute("aria-label", "Play (space)");
  }

  changeSpeed(by) {
    const index = Math.max(0, Math.min(SPEEDS.length - 1, SPEEDS.indexOf(this.speed) + by));
    this.speed = SPEEDS[index];
    this.showSpeed();
  }

  showSpeed() { this.speedText.textContent = `${this.speed}×`; }

  /** To the next (1) or previous (-1) notable step. */
  jump(direction) {
    const steps = [...this.data.notable.map((entry) => entry.step), ...this.marks.map((mark) => mark.t)].sort((a, b) => a - b);
    const next = direction > 0 ? steps.find((step) => step > this.t) : steps.filter((step) => step < this.t).at(-1);
    if (next !== undefined) this.seek(next);
  }

  destroy() {
    this.pause();
    for (const chart of this.charts) chart.destroy();
    this.root.replaceChildren();
  }
}

/** What the keys of a clock do, by key. `view()` is the view that has the clock. */
export function clockKeys(view) {
  return {
    " ": () => view().toggle(),
    ArrowRight: (event) => view().seek(view().t + (event.shiftKey ? 10 : 1)),
    ArrowLeft: (event) => view().seek(view().t - (event.shiftKey ? 10 : 1)),
    Home: () => view().seek(0),
    End: () => view().seek(view().end),
    "[": () => view().changeSpeed(-1),
    "]": () => view().changeSpeed(1),
    ",": () => view().jump(-1),
    ".": () => view().jump(1),
  };
}

/** Listen for keys, but not while somebody types, or presses a button with the space bar. */
export function bindKeys(bindings) {
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const { target } = event;
    if (target instanceof Element) {
      if (target.matches("input:not([type=range]), textarea, select")) return;
      if (event.key === " " && target.closest("button, a, summary")) return;
    }
    const action = bindings()[event.key];
    if (action) { event.preventDefault(); action(event); }
  };
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}
