// Charts of an episode over its steps, with one cursor: canvas, no imports.

const PAD = { left: 46, right: 10, top: 8, bottom: 16 };

const css = (element, name) => getComputedStyle(element).getPropertyValue(name).trim();

/** Make an element: h("div", {class: "x"}, child, "text"). */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

function number(x) {
  if (!Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (x !== 0 && (size < 1e-3 || size >= 1e5)) return x.toExponential(1).replace("e+", "e");
  return String(Number(x.toPrecision(3)));
}

/**
 * One chart. `lines()` gives [{label, values: Float64Array, colour: "--c0", steps: bool}].
 * `onSeek(t)` is called when a person points at a step.
 */
export class Chart {
  constructor(title, lines, onSeek) {
    this.lines = lines;
    this.t = 0;
    this.n = 1;
    this.marks = [];
    this.legend = h("span", { class: "ep-legend" });
    this.canvas = h("canvas", { class: "ep-chart-canvas", role: "img", "aria-label": `${title} over the steps` });
    this.element = h("figure", { class: "ep-chart" }, h("figcaption", {}, h("b", {}, title), this.legend), this.canvas);
    this.still = document.createElement("canvas");
    const seek = (event) => { if (event.buttons || event.type === "pointerdown") onSeek(this.stepAt(event.offsetX)); };
    this.canvas.addEventListener("pointerdown", (event) => { this.canvas.setPointerCapture(event.pointerId); seek(event); });
    this.canvas.addEventListener("pointermove", seek);
    this.observer = new ResizeObserver(() => this.redraw());
    this.observer.observe(this.canvas);
  }

  stepAt(x) {
    const share = (x - PAD.left) / Math.max(1, this.canvas.clientWidth - PAD.left - PAD.right);
    return Math.round(Math.min(1, Math.max(0, share)) * Math.max(0, this.n - 1));
  }

  x(t) { return PAD.left + (t / Math.max(1, this.n - 1)) * (this.canvas.clientWidth - PAD.left - PAD.right); }

  /** New data: draw everything. `n`: states of the episode. */
  update(n, marks = []) {
    this.n = n;
    this.marks = marks;
    this.redraw();
  }

  redraw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const scale = globalThis.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.still]) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    this.shown = this.lines().filter((line) => line.values.some(Number.isFinite));
    this.canvas.dataset.lines = String(this.shown.length);
    this.canvas.dataset.points = String(this.shown.reduce((sum, line) => sum + line.values.length, 0));
    const draw = this.still.getContext("2d");
    draw.scale(scale, scale);
    this.drawAxes(draw, width, height);
    for (const line of this.shown) this.drawLine(draw, line, height);
    this.drawMarks(draw, height);
    this.setLegend();
    this.setStep(this.t);
  }

  drawAxes(draw, width, height) {
    let low = Infinity;
    let high = -Infinity;
    for (const { values } of this.shown) for (const y of values) { if (y < low) low = y; if (y > high) high = y; }
    if (!(low <= high)) { low = 0; high = 1; }
    if (low === high) { low -= 0.5; high += 0.5; }
    const lacking = (0.002 * Math.max(Math.abs(low), Math.abs(high)) - (high - low)) / 2;  // smaller changes are noise
    if (lacking > 0) { low -= lacking; high += lacking; }
    if (Math.abs(low) < 1e-9 * (high - low)) low = 0;
    if (Math.abs(high) < 1e-9 * (high - low)) high = 0;
    const room = (high - low) * 0.06;
    this.low = low - room;
    this.high = high + room;
    draw.font = "11px system-ui, sans-serif";
    draw.fillStyle = css(this.canvas, "--quiet");
    draw.strokeStyle = css(this.canvas, "--grid");
    draw.textAlign = "right";
    draw.textBaseline = "middle";
    for (const y of [low, (low + high) / 2, high]) {
      const place = this.y(y, height);
      draw.beginPath();
      draw.moveTo(PAD.left, place);
      draw.lineTo(width - PAD.right, place);
      draw.stroke();
      draw.fillText(tick(y, low, high), PAD.left - 6, place);
    }
    if (low < 0 && high > 0) {
      draw.strokeStyle = css(this.canvas, "--line");
      draw.beginPath();
      draw.moveTo(PAD.left, this.y(0, height));
      draw.lineTo(width - PAD.right, this.y(0, height));
      draw.stroke();
    }
    draw.textBaseline = "alphabetic";
    draw.textAlign = "left";
    draw.fillText("0", PAD.left, height - 3);
    draw.textAlign = "right";
    draw.fillText(String(Math.max(0, this.n - 1)), width - PAD.right, height - 3);
  }

  y(value, height) { return PAD.top + ((this.high - value) / (this.high - this.low)) * (height - PAD.top - PAD.bottom); }

  drawLine(draw, line, height) {
    draw.strokeStyle = css(this.canvas, line.colour);
    draw.lineWidth = 1.5;
    draw.setLineDash(line.dash ?? []);
    draw.beginPath();
    let isOpen = false;
    let before = 0;
    line.values.forEach((value, t) => {
      if (!Number.isFinite(value)) { isOpen = false; return; }
      const [x, y] = [this.x(t), this.y(value, height)];
      if (!isOpen) draw.moveTo(x, y);
      else if (line.steps) { draw.lineTo(x, before); draw.lineTo(x, y); } else draw.lineTo(x, y);
      before = y;
      isOpen = true;
    });
    draw.stroke();
    draw.setLineDash([]);
  }

  drawMarks(draw, height) {
    for (const mark of this.marks) {
      draw.strokeStyle = css(this.canvas, mark.colour);
      draw.setLineDash([4, 3]);
      draw.beginPath();
      draw.moveTo(this.x(mark.t), PAD.top);
      draw.lineTo(this.x(mark.t), height - PAD.bottom);
      draw.stroke();
      draw.setLineDash([]);
    }
  }

  setLegend() {
    this.legend.replaceChildren(...this.shown.map((line) => {
      const sign = h("i", { class: line.dash ? "dashed" : "" });
      sign.style.borderColor = `var(${line.colour})`;
      line.number = h("b", {});
      return h("span", {}, sign, `${line.label} `, line.number);
    }));
  }

  setStep(t) {
    this.t = t;
    if (!this.shown) return;
    const draw = this.canvas.getContext("2d");
    const scale = this.canvas.width / Math.max(1, this.canvas.clientWidth);
    draw.setTransform(1, 0, 0, 1, 0, 0);
    draw.clearRect(0, 0, this.canvas.width, this.canvas.height);
    draw.drawImage(this.still, 0, 0);
    draw.setTransform(scale, 0, 0, scale, 0, 0);
    draw.strokeStyle = css(this.canvas, "--text");
    draw.lineWidth = 1;
    draw.beginPath();
    draw.moveTo(this.x(t), PAD.top - 4);
    draw.lineTo(this.x(t), this.canvas.clientHeight - PAD.bottom);
    draw.stroke();
    this.canvas.dataset.step = String(t);
    for (const line of this.shown) line.number.textContent = t < line.values.length ? number(line.values[t]) : "–";
  }

  destroy() { this.observer.disconnect(); }
}

/** A number of an axis, with as many digits as tell it from the others. */
function tick(y, low, high) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (size < 1e-3 || size >= 1e6) return number(y);
  const digits = Math.ceil(-Math.log10(high - low)) + 1;
  return String(Number(y.toFixed(Math.min(8, Math.max(0, digits)))));
}

/** A picture of a matrix [steps, width] with a cursor: the memory of a recurrent agent. */
export class HeatStrip {
  constructor(title, data, name, onSeek) {
    Object.assign(this, { data, name, t: 0, n: 1 });
    this.canvas = h("canvas", { class: "ep-heat-canvas", role: "img", "aria-label": `${title} over the steps` });
    this.cursor = h("i", { class: "ep-heat-cursor" });
    this.element = h("figure", { class: "ep-chart" }, h("figcaption", {}, h("b", {}, title)), h("div", { class: "ep-heat" }, this.canvas, this.cursor));
    this.canvas.addEventListener("pointerdown", (event) => {
      onSeek(Math.floor((event.offsetX / Math.max(1, this.canvas.clientWidth)) * this.n));
    });
  }

  update() {
    const { data, name } = this;
    const [n, width] = [Math.max(1, data.n), data.widthOf(name)];
    let top = 0;
    for (let i = 0; i < width; i++) for (const x of data.range(name, i)) top = Math.max(top, Math.abs(x) || 0);
    const image = new ImageData(n, width);
    for (let t = 0; t < n; t++) for (let i = 0; i < width; i++) {
      const x = top ? data.at(name, t, i) / top : 0;
      const part = Math.min(1, Math.abs(x) || 0);
      const end = x >= 0 ? [213, 94, 0] : [0, 114, 178];
      const at = 4 * (i * n + t);
      for (let c = 0; c < 3; c++) image.data[at + c] = 245 * (1 - part) + end[c] * part;
      image.data[at + 3] = 255;
    }
    this.n = n;
    this.canvas.width = n;
    this.canvas.height = width;
    this.canvas.dataset.width = String(width);
    this.canvas.getContext("2d").putImageData(image, 0, 0);
    this.setStep(this.t);
  }

  setStep(t) {
    this.t = t;
    this.cursor.style.left = `${(100 * (Math.min(t, this.n - 1) + 0.5)) / this.n}%`;
  }

  destroy() {}
}
