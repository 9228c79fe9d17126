// What the agent decided and what it saw at one step: bars with names. Rows are made once and only
// changed from step to step.
import { text } from "./data.js";
import { h } from "./charts.js";

const MOST_ROWS = 128;
const MOST_NOTABLE = 100;
const GOAL = /^(achieved|desired)_goal(.*)$/;

/** A row: name, a track with a bar and a mark, a number. */
function makeRow(name, onClick) {
  const row = { bar: h("i", { class: "ep-fill" }), mark: h("u"), number: h("output"), sign: h("span", { class: "ep-sign" }) };
  row.element = h(onClick ? "button" : "div", { class: "ep-bar", type: onClick ? "button" : null, title: name, onclick: onClick ?? null },
    row.sign, h("span", { class: "ep-name" }, name), h("span", { class: "ep-track" }, row.bar, row.mark), row.number);
  if (!onClick) row.element.removeAttribute("onclick");
  return row;
}

/** The part of a track from a to b, both from 0 to 1. */
function fill(element, a, b) {
  const low = Math.max(0, Math.min(1, Math.min(a, b) || 0));
  const high = Math.max(0, Math.min(1, Math.max(a, b) || 0));
  element.style.left = `${100 * low}%`;
  element.style.width = `${100 * (high - low)}%`;
}

function place(element, share) {
  element.hidden = !Number.isFinite(share);
  element.style.left = `${100 * Math.max(0, Math.min(1, share || 0))}%`;
}

/** Probabilities, Q-values, or means and deviations; the action taken and the best one are marked. */
export class ActionPanel {
  /** `onAction(value)`: a person picks an action, to branch with it. */
  constructor(data, onAction) {
    this.data = data;
    const kinds = ["probabilities", "q_values", "mean"];
    this.main = kinds.find((name) => data.has(name)) ?? "action";
    this.isChoice = this.main === "probabilities" || this.main === "q_values";
    const labels = data.labels(this.main);
    const pick = (i) => onAction && this.pickable(i) !== null ? () => onAction(this.pickable(i)) : null;
    this.rows = labels.slice(0, MOST_ROWS).map((name, i) => makeRow(name, pick(i)));
    const more = labels.length - this.rows.length;
    const titles = { probabilities: "Probabilities", q_values: "Q-values", mean: "Action: mean ± deviation", action: "Action" };
    this.summary = h("p", { class: "ep-summary" });
    this.element = h("section", { class: "ep-panel", "aria-label": "Action" },
      h("h3", {}, titles[this.main]), this.summary,
      h("div", { class: "ep-bars" }, ...this.rows.map((row) => row.element)), more > 0 ? h("p", { class: "quiet" }, `and ${more} more`) : null);
  }

  /** The action to branch with for a row; null where a row is only a part of an action. */
  pickable(i) {
    const { kind, leaves } = this.data.facts.action;
    return kind === "discrete" && this.isChoice ? leaves[0].start + i : null;
  }

  show(t) {
    const { data } = this;
    const [chosen, best] = [new Set(data.chosen(t)), new Set(data.has("greedy_action") ? data.chosen(t, "greedy_action") : [])];
    const isForced = data.at("forced", t) === 1;
    this.element.dataset.step = String(t);
    this.element.dataset.action = data.actionText(t);
    this.summary.replaceChildren(...this.sentence(t, isForced));
    if (this.isChoice) this.rows.forEach((row, i) => this.showChoice(row, i, t, chosen, best));
    else this.rows.forEach((row, i) => this.showNumber(row, i, t));
  }

  sentence(t, isForced) {
    const { data } = this;
    const action = data.actionText(t);
    if (!action) return [h("span", { class: "quiet" }, "the last state: no decision")];
    const greedy = data.info[t]?.greedy;
    const parts = [h("b", {}, action)];
    if (isForced) parts.push(h("span", { class: "chip" }, "changed by hand"));
    else if (data.at("is_greedy", t) === 0 && greedy && greedy !== action) parts.push(h("span", { class: "chip" }, `best: ${greedy}`));
    return parts;
  }

  showChoice(row, i, t, chosen, best) {
    const { data } = this;
    const value = data.at(this.main, t, i);
    const isLegal = !data.has("legal") || data.at("legal", t, i) !== 0;
    if (this.main === "probabilities") {
      fill(row.bar, 0, value);
      const q = data.has("q_values") ? `  Q ${text(data.at("q_values", t, i))}` : "";
      row.number.textContent = Number.isFinite(value) ? `${(100 * value).toFixed(1)} %${q}` : "–";
    } else {
      let [low, high] = [Infinity, -Infinity];
      for (let k = 0; k < data.widthOf(this.main); k++) { const [a, b] = data.range(this.main, k); low = Math.min(low, a); high = Math.max(high, b); }
      const span = high - low || 1;
      const zero = Math.max(0, Math.min(1, -low / span));
      fill(row.bar, low < 0 && high > 0 ? zero : 0, (value - low) / span);
      row.number.textContent = text(value);
    }
    row.mark.hidden = true;
    row.sign.textContent = chosen.has(i) ? "●" : best.has(i) ? "★" : isLegal ? "" : "✕";
    row.sign.title = chosen.has(i) ? "taken" : best.has(i) ? "best" : isLegal ? "" : "not legal";
    row.element.classList.toggle("chosen", chosen.has(i));
    row.element.classList.toggle("illegal", !isLegal);
  }

  showNumber(row, i, t) {
    const { data } = this;
    const leaf = data.facts.action.leaves.length === 1 ? data.facts.action.leaves[0] : {};
    const own = data.range("action", i);
    const low = leaf.low?.[i] ?? own[0];
    const high = leaf.high?.[i] ?? own[1];
    const share = (x) => (x - low) / (high - low || 1);
    const action = data.at("action", t, i);
    place(row.mark, share(action));
    if (this.main === "mean") {
      const [mean, std] = [data.at("mean", t, i), data.at("std", t, i)];
      fill(row.bar, share(mean - std), share(mean + std));
      row.number.textContent = `${text(action)}  (${text(mean)} ± ${text(std)})`;
    } else {
      fill(row.bar, 0, 0);
      row.number.textContent = text(action);
    }
  }
}

/** The observation as the environment gave it, or as the network got it. */
export class ObsPanel {
  constructor(data) {
    this.data = data;
    this.body = h("div", { class: "ep-bars" });
    this.kinds = [["obs", "As observed"], ["seen", "As the network gets it"], ["why", "Why (gradient × input)"]]
      .filter(([name]) => data.has(name) || name === "why");
    this.buttons = this.kinds.map(([name, label]) => {
      const button = h("button", { type: "button", onclick: () => this.choose(name) }, label);
      button.hidden = name === "why";
      return button;
    });
    this.why = null;
    this.kind = "";
    this.t = 0;
    this.element = h("section", { class: "ep-panel", "aria-label": "Observation" },
      h("div", { class: "row" }, h("h3", {}, "Observation"), h("span", { class: "seg" }, ...this.buttons)), this.body);
    this.choose(data.has("obs") ? "obs" : data.has("seen") ? "seen" : "");
  }

  choose(kind) {
    this.kind = kind;
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(this.kinds[i][0] === kind)));
    if (!kind) {
      this.rows = [];
      this.body.replaceChildren(h("p", { class: "quiet" }, "The observation is an image: see the network's view."));
      return;
    }
    const labels = kind === "why" ? this.why.contributions.map(([name]) => name) : this.data.labels(kind);
    this.rows = labels.slice(0, MOST_ROWS).map((name) => makeRow(name, null));
    const more = labels.length - this.rows.length;
    this.body.replaceChildren(...this.rows.map((row) => row.element), ...(more > 0 ? [h("p", { class: "quiet" }, `and ${more} more`)] : []));
    this.show(this.t);
  }

  /** Contributions of the components, from the worker; null: none. */
  setWhy(why) {
    this.why = why?.contributions ? why : null;
    const button = this.buttons[this.kinds.findIndex(([name]) => name === "why")];
    button.hidden = !this.why;
    if (this.why) this.choose("why");
    else if (this.kind === "why") this.choose(this.data.has("obs") ? "obs" : "seen");
  }

  /** [lowest, highest] of a component, known or in this episode; of a goal wanted and reached one range. */
  rangeOf(i) {
    const features = this.kind === "obs" ? this.data.facts.features : [];
    const own = this.data.range(this.kind, i);
    const goal = GOAL.exec(features[i]?.name ?? "");
    const twin = goal ? features.findIndex((other, k) => k !== i && GOAL.exec(other.name ?? "")?.[2] === goal[2]) : -1;
    const other = twin < 0 ? own : this.data.range(this.kind, twin);
    return [features[i]?.low ?? Math.min(own[0], other[0]), features[i]?.high ?? Math.max(own[1], other[1])];
  }

  show(t) {
    this.t = t;
    if (this.kind === "why") { this.showWhy(); return; }
    this.rows.forEach((row, i) => {
      const value = this.data.at(this.kind, t, i);
      const feature = this.kind === "obs" ? this.data.facts.features[i] ?? {} : {};
      const [low, high] = this.rangeOf(i);
      const share = (value - low) / (high - low || 1);
      const zero = low < 0 && high > 0 ? -low / (high - low) : 0;
      fill(row.bar, zero, share);
      place(row.mark, share);
      row.number.textContent = `${text(value)}${feature.unit ? ` ${feature.unit}` : ""}`;
      row.element.title = `${feature.name ?? ""}  from ${text(low)} to ${text(high)}${feature.low === null ? " (in this episode)" : ""}`;
    });
  }

  showWhy() {
    const top = Math.max(...this.why.contributions.map(([, x]) => Math.abs(x)), 1e-12);
    this.rows.forEach((row, i) => {
      const value = this.why.contributions[i][1];
      fill(row.bar, 0.5, 0.5 + value / top / 2);
      row.mark.hidden = true;
      row.number.textContent = text(value);
    });
  }
}

/** The steps worth a look, worst first: what went furthest below what the critic expected. */
export class NotableList {
  constructor(data, onSeek) {
    Object.assign(this, { data, onSeek });
    this.count = h("span", { class: "quiet" });
    this.list = h("ol", { class: "ep-notable-list", tabindex: "0", "aria-label": "Notable steps, worst first" });
    this.element = h("section", { class: "ep-panel ep-notable", "aria-label": "Notable steps" },
      h("div", { class: "row" }, h("h3", {}, "Notable steps"), this.count), this.list);
  }

  /** Below zero: worse than expected. */
  surprise(step) {
    const known = ["td_error", "reward"].map((name) => this.data.at(name, step)).find(Number.isFinite);
    return known ?? 0;
  }

  update() {
    const found = [...this.data.notable].sort((a, b) => this.surprise(a.step) - this.surprise(b.step) || a.step - b.step);
    const isLong = found.length > MOST_NOTABLE;
    this.count.textContent = !this.data.isDone ? "known when it has ended" : found.length ? `${isLong ? `the worst ${MOST_NOTABLE} of ` : ""}${found.length}, worst first` : "none";
    this.buttons = new Map(found.slice(0, MOST_NOTABLE).map(({ step, why }) => [step, h("button", { type: "button", onclick: () => this.onSeek(step) }, h("b", {}, String(step)), h("span", {}, why.join(", ")))]));
    this.list.replaceChildren(...[...this.buttons.values()].map((button) => h("li", {}, button)));
  }

  show(t) {
    this.shown?.removeAttribute("aria-current");
    this.shown = this.buttons?.get(t);
    this.shown?.setAttribute("aria-current", "step");
  }
}

const ROW = 24;

/** The steps as a table; only the rows in sight exist. */
export class StepTable {
  constructor(data, onSeek) {
    Object.assign(this, { data, onSeek, t: 0 });
    this.columns = this.chooseColumns();
    this.head = h("div", { class: "ep-tr ep-th", role: "row" }, ...this.columns.map(([label]) => h("span", { role: "columnheader" }, label)));
    this.space = h("div", { class: "ep-space" });
    this.lines = h("div", { class: "ep-lines", role: "rowgroup" });
    this.scroll = h("div", { class: "ep-scroll", role: "table", tabindex: "0", "aria-label": "Steps", onscroll: () => this.draw() },
      this.head, this.space);
    this.space.append(this.lines);
    this.element = this.scroll;
  }

  chooseColumns() {
    const { data } = this;
    const columns = [["step", (t) => String(t)], ["action", (t) => data.actionText(t)]];
    if (data.has("probabilities") && data.facts.action.kind === "discrete") {
      columns.push(["probability", (t) => text(data.at("probabilities", t, data.chosen(t)[0] ?? 0))]);
    }
    for (const [name, label] of [["reward", "reward"], ["return", "return"], ["value", "value"], ["return_to_go", "return to go"],
      ["advantage", "advantage"], ["td_error", "TD error"], ["entropy", "entropy"]]) {
      columns.push([label, (t) => text(data.at(name, t))]);
    }
    columns.push(["info", (t) => Object.entries(data.info[t]?.info ?? {}).slice(0, 4).map(([k, v]) => `${k} ${text(v)}`).join("  ")]);
    columns.push(["notable", (t) => data.whyNotable(t).join(", ")]);
    return columns;
  }

  update() {
    this.space.style.height = `${this.data.n * ROW}px`;
    this.scroll.setAttribute("aria-rowcount", String(this.data.n));
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - 4);
    const last = Math.min(this.data.n, first + Math.ceil((this.scroll.clientHeight || 240) / ROW) + 10);
    this.lines.style.transform = `translateY(${first * ROW}px)`;
    const rows = [];
    for (let t = first; t < last; t++) {
      const row = h("div", { class: `ep-tr${t === this.t ? " current" : ""}${this.data.whyNotable(t).length ? " notable" : ""}`, role: "row", "data-step": String(t),
        onclick: () => this.onSeek(t) }, ...this.columns.map(([, cell]) => h("span", { role: "cell" }, cell(t))));
      rows.push(row);
    }
    this.lines.replaceChildren(...rows);
  }

  show(t, follow) {
    this.t = t;
    const [top, height] = [this.scroll.scrollTop, this.scroll.clientHeight - 2 * ROW];
    if (follow && height > 0 && (t * ROW < top || t * ROW > top + height)) this.scroll.scrollTop = Math.max(0, t * ROW - height / 2);
    this.draw();
  }
}

/** Facts by name, one below the other. */
export function factTable(facts) {
  const words = (value) => (Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : typeof value === "number" ? value.toLocaleString("en") : String(value));
  const shown = Object.entries(facts).filter(([name, value]) => name !== "layers" && value !== null);
  return h("table", { class: "ep-facts-table" }, ...shown.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, words(value)))));
}

/** The layers of a network: kind, shape of the output, size. */
export function layerTable(layers) {
  const heads = ["layer", "kind", "output", "parameters", "multiply-adds"];
  const number = (value) => h("td", { class: "num" }, value.toLocaleString("en"));
  return h("table", { class: "ep-facts-table" }, h("tr", {}, ...heads.map((name) => h("th", { scope: "col" }, name))),
    ...layers.map((row) => h("tr", {}, h("td", { class: "mono" }, row.name), h("td", {}, row.kind), h("td", {}, row.output.join(" × ")), number(row.parameters), number(row.multiply_adds))));
}
