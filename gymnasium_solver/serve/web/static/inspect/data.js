// A recorded episode in the browser: its numbers and its frames. No imports: the same file is part of
// pages that are opened from disk. The format is described in runs/episodes.py.

const DERIVED = ["return_to_go", "td_error", "advantage"];
const KEPT_BITMAPS = 96;

/** The images of one pack: {count, offsets, bytes}. */
export function readPack(buffer, chunk = 64) {
  const view = new DataView(buffer);
  const count = Math.min(view.getUint32(0, true), chunk);
  const offsets = [];
  for (let i = 0; i <= count; i++) offsets.push(view.getUint32(4 + 4 * i, true));
  if (offsets[count] > buffer.byteLength) throw new Error("a damaged frame pack");
  return { count, offsets, bytes: new Uint8Array(buffer) };
}

/** Frames by view and step. `load(view, chunk)` gives the bytes of a pack. */
export class Frames {
  constructor(load, facts) {
    this.load = load;
    this.chunk = facts.chunk ?? 64;
    this.mime = Object.fromEntries(Object.entries(facts.frames ?? {}).map(([view, f]) => [view, `image/${f.format}`]));
    this.packs = new Map();
    this.bitmaps = new Map();
  }

  has(view) { return view in this.mime; }

  pack(view, chunk, atLeast) {
    const key = `${view}/${chunk}`;
    const known = this.packs.get(key);
    if (known && (known.count === undefined || known.count >= atLeast)) return known.promise;
    const entry = { count: undefined };
    entry.promise = this.load(view, chunk).then((buffer) => {
      const pack = readPack(buffer, this.chunk);
      entry.count = pack.count;
      return pack;
    });
    entry.promise.catch(() => { if (this.packs.get(key) === entry) this.packs.delete(key); });
    this.packs.set(key, entry);
    return entry.promise;
  }

  async blob(view, t) {
    const slot = t % this.chunk;
    const pack = await this.pack(view, Math.floor(t / this.chunk), slot + 1);
    if (slot >= pack.count) return null;
    return new Blob([pack.bytes.subarray(pack.offsets[slot], pack.offsets[slot + 1])], { type: this.mime[view] });
  }

  /** The decoded image if it is there already. */
  ready(view, t) {
    const found = this.bitmaps.get(`${view}/${t}`);
    return found instanceof Promise ? null : found ?? null;
  }

  async bitmap(view, t) {
    const key = `${view}/${t}`;
    const known = this.bitmaps.get(key);
    if (known) return known;
    const made = this.blob(view, t).then((blob) => (blob ? createImageBitmap(blob) : null));
    this.bitmaps.set(key, made);
    try {
      const bitmap = await made;
      if (bitmap) this.bitmaps.set(key, bitmap); else this.bitmaps.delete(key);
      while (this.bitmaps.size > KEPT_BITMAPS) {
        const oldest = this.bitmaps.keys().next().value;
        this.bitmaps.delete(oldest);  // the collector frees it; one that is being drawn stays valid
      }
      return bitmap;
    } catch (error) {
      this.bitmaps.delete(key);
      throw error;
    }
  }
}

/** The numbers of an episode, by column and step. */
export class EpisodeData {
  constructor(facts) {
    this.facts = facts;
    this.columns = new Map();
    let start = 0;
    for (const column of facts.columns) {
      this.columns.set(column.name, { ...column, start });
      start += column.width;
    }
    this.width = start;
    this.rows = new Float32Array(0);
    this.derived = null;
    this.info = [];
    this.notable = facts.notable ?? [];
    this.parts = facts.reward_parts ?? {};
    this.ranges = new Map();
  }

  get n() { return Math.floor(this.rows.length / this.width); }
  /** The number of the last state. */
  get last() { return Math.max(0, this.n - 1); }
  get isDone() { return this.facts.status !== "running"; }

  addRows(buffer) {
    if (!buffer.byteLength) return;
    const more = new Float32Array(buffer);
    const all = new Float32Array(this.rows.length + more.length);
    all.set(this.rows);
    all.set(more, this.rows.length);
    this.rows = all;
    this.ranges.clear();
  }

  setDerived(buffer) {
    this.derived = buffer.byteLength ? new Float32Array(buffer) : null;
    this.ranges.clear();
  }

  has(name) { return this.columns.has(name) || (this.derived !== null && DERIVED.includes(name)) || name in this.parts; }
  widthOf(name) { return this.columns.get(name)?.width ?? 1; }
  labels(name) {
    const column = this.columns.get(name);
    if (!column) return [];
    return column.labels.length ? column.labels : [column.name];
  }

  /** A number; NaN where there is none. */
  at(name, t, i = 0) {
    const column = this.columns.get(name);
    if (column) return t < this.n ? this.rows[t * this.width + column.start + i] : NaN;
    const index = DERIVED.indexOf(name);
    if (index >= 0) return this.derived ? this.derived[t * DERIVED.length + index] ?? NaN : NaN;
    return this.parts[name]?.[t] ?? NaN;
  }

  vector(name, t) {
    const width = this.widthOf(name);
    return Array.from({ length: width }, (_, i) => this.at(name, t, i));
  }

  series(name, i = 0) {
    const out = new Float64Array(this.n);
    for (let t = 0; t < this.n; t++) out[t] = this.at(name, t, i);
    return out;
  }

  /** [lowest, highest] of a column over the episode. */
  range(name, i = 0) {
    const key = `${name}/${i}`;
    if (!this.ranges.has(key)) {
      let low = Infinity;
      let high = -Infinity;
      for (let t = 0; t < this.n; t++) {
        const x = this.at(name, t, i);
        if (x < low) low = x;
        if (x > high) high = x;
      }
      this.ranges.set(key, low <= high ? [low, high] : [0, 1]);
    }
    return this.ranges.get(key);
  }

  actionText(t) { return this.info[t]?.action ?? ""; }
  text(t) { return this.info[t]?.text ?? null; }
  whyNotable(t) { return this.notable.find((entry) => entry.step === t)?.why ?? []; }

  /** Which of the choices were taken at a step: indices into probabilities or Q-values. */
  chosen(t, name = "action") {
    const { kind, leaves } = this.facts.action;
    const action = this.vector(name, t);
    if (!Number.isFinite(action[0])) return [];
    if (kind === "discrete") return [action[0] - leaves[0].start];
    if (kind === "multi_binary") return action.flatMap((bit, i) => (bit ? [i] : []));
    if (kind !== "multi_discrete") return [];
    let first = 0;
    return leaves[0].sizes.map((size, i) => {
      const index = first + action[i] - leaves[0].start[i];
      first += size;
      return index;
    });
  }
}

/** Up to four significant digits. */
export function text(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (typeof x !== "number") return String(x);
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "-∞";
  const size = Math.abs(x);
  if (x !== 0 && (size < 1e-3 || size >= 1e6)) return x.toExponential(2).replace("e+", "e");
  return String(Number(x.toPrecision(4)));
}
