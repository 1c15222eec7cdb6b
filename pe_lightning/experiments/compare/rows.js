// -- rows ----------------------------------------------------------------------------------------------------------------

const COLOURS = 8;
const DASHES = [[], [7, 3], [2, 3]];
const SHOWN_AT_FIRST = 4;
const FEWEST_POINTS = { values: 8, ranges: 200 };
const MARGIN = { left: 64, right: 24, top: 24, bottom: 26 };
const arrays = new Map();

function bytes(key) {
  const binary = atob(content(key));
  const found = new Uint8Array(binary.length);
  for (let k = 0; k < binary.length; k++) found[k] = binary.charCodeAt(k);
  return found;
}

/** The float32 values of a key. */
function values(key) {
  if (!arrays.has(key)) arrays.set(key, new Float32Array(bytes(key).buffer));
  return arrays.get(key);
}

class RowViewer {
  constructor(root, signals) {
    Object.assign(this, { root, signals, hidden: new Set(), channel: 0, from: 0, to: 0 });
    this.signal = chooser(signals, () => this.build());
    this.channels = make("select", { ariaLabel: "channel" });
    this.channels.addEventListener("change", () => { this.channel = Number(this.channels.value); this.load(); });
    this.reset = make("button", { type: "button" }, "whole row");
    this.reset.addEventListener("click", () => this.show(0, this.points));
    const hint = make("span", { className: "data" },
      "Wheel or + and − zoom, dragging or arrows move, in both plots at once; 0 resets. The vertical axes follow what is shown.");
    this.legend = make("div", { className: "legend" });
    this.plots = ["values", "error"].map((name) => this.plot(name));
    root.replaceChildren(
      make("div", { className: "controls" }, this.signal, this.channels, this.reset, hint), this.legend, ...this.plots);
    new ResizeObserver(() => this.redraw()).observe(this.plots[0]);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.load());
    signals.forEach(({ tiles }) => tiles.filter((tile) => tile.values).slice(SHOWN_AT_FIRST).forEach((t) => this.hidden.add(t.run)));
    this.build();
  }

  plot(name) {
    const canvas = make("canvas", { className: `plot ${name}`, tabIndex: 0, role: "img" });
    const share = () => canvas.clientWidth / Math.max(1, canvas.clientWidth - MARGIN.left - MARGIN.right);
    const inside = (u) => (u * canvas.clientWidth - MARGIN.left) / Math.max(1, canvas.clientWidth - MARGIN.left - MARGIN.right);
    listen(canvas, {
      zoom: (factor, u) => this.zoomAt(factor, u === undefined ? 0.5 : Math.min(Math.max(inside(u), 0), 1)),
      move: (du) => this.show(this.from - du * share() * (this.to - this.from), this.to - du * share() * (this.to - this.from)),
      reset: () => this.show(0, this.points),
    });
    return canvas;
  }

  /** The chosen signal: its channels, and a box to tick for every run. */
  build() {
    const { channels, tiles, count, step } = this.chosen = this.signals[this.signal.value];
    this.channel = Math.min(this.channel, channels - 1);
    const names = Array.from({ length: channels }, (_, k) => make("option", { value: k }, `channel ${k + 1}`));
    this.channels.replaceChildren(...names);
    this.channels.value = this.channel;
    this.channels.hidden = channels < 2;
    const points = Math.ceil(count / step);
    if (points !== this.points) [this.points, this.from, this.to] = [points, 0, points];
    const entries = [];
    if (this.chosen.truth) entries.push(make("span", {}, this.swatch("var(--text)", []), "ground truth"));
    if (this.chosen.trained) entries.push(make("span", {}, make("i", { className: "dot" }), "trained on, where there is room"));
    tiles.forEach((tile, k) => entries.push(this.entry(tile, k)));
    this.legend.replaceChildren(...entries);
    this.load();
  }

  entry(tile, k) {
    const [title, below] = caption(tile);
    const text = make("span", {}, make("strong", {}, title), ` ${tile.values ? below : tile.reason}`);
    if (!tile.values) return make("span", { className: "missing" }, text);
    const box = make("input", { type: "checkbox", checked: !this.hidden.has(tile.run) });
    box.addEventListener("change", () => {
      this.hidden[box.checked ? "delete" : "add"](tile.run);
      this.load();
    });
    return make("label", {}, box, this.swatch(`var(--c${k % COLOURS})`, DASHES[Math.floor(k / COLOURS) % DASHES.length]), text);
  }

  swatch(colour, dash) {
    const swatch = make("i", { className: "swatch" });
    swatch.style.borderTopColor = colour;
    swatch.style.borderTopStyle = ["solid", "dashed", "dotted"][DASHES.findIndex((d) => String(d) === String(dash))];
    return swatch;
  }

  /** The lines of the chosen channel. */
  load() {
    const style = getComputedStyle(this.root);
    const colour = (name) => style.getPropertyValue(name).trim();
    const { truth, tiles, step, trained } = this.chosen;
    const known = truth ? this.line(truth, { colour: colour("--text"), width: 1.8, outlined: true }) : null;
    this.lines = { values: [], error: [] };
    tiles.forEach((tile, k) => {
      if (!tile.values || this.hidden.has(tile.run)) return;
      const look = { colour: colour(`--c${k % COLOURS}`), dash: DASHES[Math.floor(k / COLOURS) % DASHES.length] };
      const line = this.line(tile.values, look);
      this.lines.values.unshift(line);  // the first run in front
      if (tile.error) this.lines.error.unshift(this.line(tile.error, look));
      if (step === 1 && known) {
        const error = line.low.map((value, place) => value - known.low[place]);
        this.lines.error.unshift(new Line(error, error, look));
      }
    });
    this.known = known;
    this.trained = trained ? bytes(trained) : null;
    this.plots[1].hidden = !known;
    this.theme = { text: colour("--text"), faint: colour("--faint"), grid: colour("--line"), mark: colour("--accent") };
    this.redraw();
  }

  line(key, look) {
    const all = values(key);
    if (this.chosen.step === 1) {
      const part = all.subarray(this.channel * this.points, (this.channel + 1) * this.points);
      return new Line(part, part, look);
    }
    const [low, high] = [2 * this.channel, 2 * this.channel + 1].map((k) => all.subarray(k * this.points, (k + 1) * this.points));
    return new Line(low, high, look);
  }

  zoomAt(factor, u) {
    const fewest = this.chosen.step === 1 ? FEWEST_POINTS.values : FEWEST_POINTS.ranges;
    const length = Math.min(Math.max((this.to - this.from) / factor, fewest), this.points);
    const from = this.from + u * (this.to - this.from - length);
    this.show(from, from + length);
  }

  /** Shows the points from `from` to `to`, moved to where there are some. */
  show(from, to) {
    const length = Math.min(to - from, this.points);
    this.from = Math.min(Math.max(from, 0), this.points - length);
    this.to = this.from + length;
    this.redraw();
  }

  redraw() {
    cancelAnimationFrame(this.request);
    this.request = requestAnimationFrame(() => {
      this.draw(this.plots[0], this.lines.values, "value", this.valueBounds());
      const reach = Math.max(1e-6, ...this.lines.error.flatMap((line) => this.visible(line).map(Math.abs)).filter(Number.isFinite));
      this.draw(this.plots[1], this.lines.error, "reconstruction − ground truth", [-1.05 * reach, 1.05 * reach]);
    });
  }

  visible(line) {
    return line.bounds(Math.max(0, Math.floor(this.from) - 1), Math.min(this.points, Math.ceil(this.to) + 1));
  }

  /** The range of the truth and a quarter of it beyond: what strays further leaves the plot. */
  valueBounds() {
    const lines = this.known ? [this.known] : this.lines.values;
    const ends = lines.map((line) => this.visible(line)).filter(([low, high]) => low <= high);
    if (!ends.length) return [0, 1];
    const [low, high] = [Math.min(...ends.map((end) => end[0])), Math.max(...ends.map((end) => end[1]))];
    const margin = Math.max((high - low) / 4, 0.01);
    return [low - margin, high + margin];
  }

  draw(canvas, lines, title, [low, high]) {
    const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!width || !height) return;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const [right, bottom] = [width - MARGIN.right, height - MARGIN.bottom];
    const x = (point) => MARGIN.left + (point + 0.5 - this.from) / (this.to - this.from) * (right - MARGIN.left);
    const y = (value) => {
      const place = bottom - (value - low) / (high - low) * (bottom - MARGIN.top);
      return Math.min(Math.max(place, MARGIN.top - 9), bottom + 9);  // infinity has no place
    };
    this.axes(context, title, [low, high], y, right, bottom);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, right - MARGIN.left, bottom - MARGIN.top);
    context.clip();
    const [from, to] = [Math.max(0, Math.floor(this.from) - 1), Math.min(this.points, Math.ceil(this.to) + 1)];
    const known = lines === this.lines.values ? this.known : null;
    // a line lies behind those of the runs; the edges of a range, before them
    const order = !known ? lines : known.ranged(x(1) - x(0)) ? [...lines, known] : [known, ...lines];
    for (const line of order) line.draw(context, from, to, x, y);
    if (known) this.mark(context, from, to, x, y);
    context.restore();
    const { name, step, count } = this.chosen;
    const [first, last] = [Math.ceil(this.from - 1e-9) * step + 1, Math.min(count, Math.ceil(this.to - 1e-9) * step)];
    canvas.ariaLabel = `${title} of ${name}, samples ${first} to ${last} of ${count}; plus, minus and arrows move both plots`;
  }

  /** Dots on the truth where it was trained on, unless they would merge. */
  mark(context, from, to, x, y) {
    if (!this.trained) return;
    const places = [];
    for (let k = from; k < to; k++) if (this.trained[k >> 3] & (128 >> (k & 7))) places.push(k);
    const apart = (x(to) - x(from)) / places.length;
    if (apart < 6) return;
    context.fillStyle = this.theme.text;
    for (const k of places) {
      context.beginPath();
      context.arc(x(k), y(this.known.low[k]), Math.min(3, apart / 3), 0, 2 * Math.PI);
      context.fill();
    }
  }

  axes(context, title, [low, high], y, right, bottom) {
    const { rate, step } = this.chosen;
    const { faint, grid, text } = this.theme;
    context.font = "12px system-ui, sans-serif";
    context.lineWidth = 1;
    context.strokeStyle = grid;
    context.fillStyle = faint;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const [levels, decimals] = ticks(low, high, (bottom - MARGIN.top) / 30);
    for (const level of levels) {
      const place = Math.round(y(level)) + 0.5;
      context.beginPath();
      context.moveTo(MARGIN.left, place);
      context.lineTo(right, place);
      context.stroke();
      context.fillText(level.toFixed(Math.min(decimals, 8)), MARGIN.left - 7, place);
    }
    // samples are counted from 1, seconds from 0
    const [start, end] = [this.from, this.to].map((point) => rate ? (point * step - 0.5) / rate : point * step + 0.5);
    const [marks, digits] = ticks(start, end, Math.max(2, (right - MARGIN.left) / 90));
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const value of marks) {
      if (!rate && !Number.isInteger(Math.round(value * 1e6) / 1e6)) continue;
      const place = Math.round(MARGIN.left + (value - start) / (end - start) * (right - MARGIN.left)) + 0.5;
      context.beginPath();
      context.moveTo(place, MARGIN.top);
      context.lineTo(place, bottom);
      context.stroke();
      context.fillText(rate ? value.toFixed(Math.min(digits, 8)) : String(Math.round(value)), place, bottom + 6);
    }
    context.strokeRect(MARGIN.left + 0.5, MARGIN.top + 0.5, right - MARGIN.left - 1, bottom - MARGIN.top - 1);
    context.fillStyle = text;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillText(title, MARGIN.left, MARGIN.top / 2);
    context.textAlign = "right";
    context.fillText(rate ? "seconds" : "sample", right, MARGIN.top / 2);
  }
}
