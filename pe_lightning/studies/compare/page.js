"use strict";

// -- tables: a click on a column's heading sorts by it, a second click reverses the order ---------------------------------

for (const table of document.querySelectorAll("table.scores")) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const isName = head.classList.contains("name");
    const [first, second] = isName ? ["ascending", "descending"] : ["descending", "ascending"];
    const order = head.getAttribute("aria-sort") === first ? second : first;
    for (const other of heads) other.setAttribute("aria-sort", other === head ? order : "none");
    const direction = order === "ascending" ? 1 : -1;
    const rows = Array.from(table.tBodies[0].rows, (row) => [row.cells[column].dataset.order, row]);
    rows.sort(([a], [b]) => {
      if (isName) return direction * a.localeCompare(b, undefined, { numeric: true });
      return (a === "") - (b === "") || direction * (a - b);  // rows without a number are last in both orders
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }));
}

// -- the viewer: shows one signal, with the same zoom in all panes --------------------------------------------------------

const content = (key) => document.getElementById(key).textContent;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

/** Creates an element with properties and children; strings become text, not HTML. */
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** Caption of a reconstruction: the name of its group, the score, and the run if the group has another name. */
function caption({ group, run, score }) {
  return [make("strong", {}, group), group === run ? score : `${score}, ${run}`];
}

class Viewer {
  constructor(root, signals) {
    Object.assign(this, { root, signals, form: root.querySelector("form"), zoom: 1, x: 0, y: 0 });
    this.panes = root.matches(".rows") ? new Rows(this) : new Pictures(this);
    this.form.addEventListener("input", ({ target }) => target.name === "signal" ? this.build() : this.panes.draw());
    this.form.whole.addEventListener("click", () => this.show(1, 0, 0));
    new ResizeObserver(() => this.panes.draw()).observe(root);
    this.build();
  }

  /** Loads the selected signal: `tiles` are its reconstructions, `first` is the first one that exists. */
  build() {
    [this.name, this.tiles] = this.signals[this.form.signal.value];
    this.first = this.tiles.find((tile) => !tile.reason);
    this.panes.build();
    this.panes.draw();
  }

  /** Zooms by a factor about the fixed point (u, v), in widths and heights of a pane. */
  zoomAt(factor, u = 0.5, v = 0.5) {
    const zoom = clamp(this.zoom * factor, 1, this.panes.mostZoom);
    this.show(zoom, u - (u - this.x) * zoom / this.zoom, v - (v - this.y) * zoom / this.zoom);
  }

  /** Sets the zoom and the position (x, y) of the upper left corner, in widths and heights of a pane. */
  show(zoom, x, y) {
    Object.assign(this, { zoom, x: clamp(x, 1 - zoom, 0), y: clamp(y, 1 - zoom, 0) });
    this.panes.draw();
  }

  move(du, dv) {
    this.show(this.zoom, this.x + du, this.y + dv);
  }

  /** Handles wheel, drag and keys of a pane with `left` and `right` margins in pixels. */
  listen(pane, left = 0, right = 0) {
    const at = (event) => {
      const box = pane.getBoundingClientRect();
      return [(event.clientX - box.left - left) / (box.width - left - right), (event.clientY - box.top) / box.height];
    };
    pane.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [u, v] = at(event);
      this.zoomAt(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), clamp(u, 0, 1), v);
    }, { passive: false });
    pane.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      Object.assign(pane, { last: at(event), grabbed: event.target.className });
      pane.setPointerCapture(event.pointerId);
    });
    pane.addEventListener("pointermove", (event) => {
      if (!pane.hasPointerCapture(event.pointerId)) return;
      const [[fromU, fromV], [u, v]] = [pane.last, at(event)];
      pane.last = [u, v];
      if (pane.grabbed === "edge") this.form.split.value = 100 * u;
      else this.move(u - fromU, v - fromV);
      this.panes.draw();
    });
    const keys = {
      ArrowLeft: () => this.move(0.1, 0), ArrowRight: () => this.move(-0.1, 0), ArrowUp: () => this.move(0, 0.1),
      ArrowDown: () => this.move(0, -0.1), "+": () => this.zoomAt(1.25), "=": () => this.zoomAt(1.25),
      "-": () => this.zoomAt(0.8), 0: () => this.show(1, 0, 0),
      ",": () => this.form.frame?.stepDown(), ".": () => this.form.frame?.stepUp(),
    };
    pane.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
      keys[event.key]();
      this.panes.draw();
      event.preventDefault();
    });
  }
}

// -- pictures, and frames of videos and volumes --------------------------------------------------------------------------

class Pictures {
  mostZoom = 64;

  constructor(viewer) {
    Object.assign(this, { viewer, form: viewer.form, tiles: viewer.root.querySelector(".tiles") });
    const filter = viewer.root.querySelector("filter");
    this.matrix = filter.querySelector("feColorMatrix");
    this.tiles.style.setProperty("--error", `url("#${filter.id}")`);
  }

  /** Creates the figures of a signal: ground truth, then the runs in the order of the table. */
  build() {
    const { first, name, tiles } = this.viewer;
    const last = first.frames.length - 1;
    if (this.form.frame.max !== String(last)) Object.assign(this.form.frame, { max: last, value: Math.ceil(last / 2) });
    this.images = [];
    const truth = this.figure([make("strong", {}, "ground truth")], this.image(first.truth, `${name}, ground truth`));
    this.tiles.replaceChildren(truth, ...tiles.map((tile) => {
      if (tile.reason) return this.figure(caption(tile), make("div", { className: "why" }, tile.reason));
      const made = this.image(tile.reconstruction, `${name}, ${tile.run}`);
      const over = make("div", { className: "over" }, this.image(tile.truth, ""));
      const layers = make("div", { className: "layers" }, made, over);
      return this.figure(caption(tile), layers, make("div", { className: "edge" }));
    }));
  }

  figure(below, ...layers) {
    const label = `${below[0].textContent}; plus, minus and arrows move all`;
    const view = make("div", { className: "view", tabIndex: 0, role: "group", ariaLabel: label }, ...layers);
    view.style.aspectRatio = this.viewer.first.size.join(" / ");
    this.viewer.listen(view);
    return make("figure", {}, view, make("figcaption", {}, ...below));
  }

  /** Creates an image that shows the selected frame. */
  image(keys, alt) {
    const image = make("img", { alt, draggable: false });
    this.images.push([image, keys]);
    return image;
  }

  /** Shows the selected frame in the selected mode; zoom and position are CSS variables of all pictures. */
  draw() {
    const { zoom, x, y, root, first: { frames, count, what, rate, size } } = this.viewer;
    const { mode, frame, split, largest, time } = this.form;
    root.dataset.mode = mode.value;
    const variables = { "--zoom": zoom, "--x": x, "--y": y, "--split": `${split.value}%` };
    for (const [name, value] of Object.entries(variables)) this.tiles.style.setProperty(name, value);
    const mean = `${1 / 3 / largest.value} `.repeat(3);
    this.matrix.setAttribute("values", `${mean} 0 0 ${mean} 0 0 ${mean} 0 0 0 0 0 1 0`);
    const number = frames[frame.value];
    time.value = `${what} ${number + 1} of ${count}${what === "frame" && rate ? ` (${(number / rate).toFixed(2)} s)` : ""}`;
    for (const [image, keys] of this.images) {
      if (image.key !== keys[frame.value]) image.src = content(image.key = keys[frame.value]);
    }
    // without interpolation where a pixel is at least 1.5 CSS pixels wide
    this.tiles.classList.toggle("pixels", zoom * this.tiles.querySelector(".view").clientWidth / size[0] >= 1.5);
  }
}

// -- rows ----------------------------------------------------------------------------------------------------------------

const NUM_COLOURS = 8;
const DASHES = { solid: [], dashed: [7, 3], dotted: [2, 3] };
const NUM_SHOWN_INITIALLY = 4;
const MARGIN = { left: 64, right: 24, top: 24, bottom: 26 };

const bytes = (key) => Uint8Array.from(atob(content(key)), (character) => character.charCodeAt(0));

/** About `count` round numbers between two bounds, at least `least` apart, each with its text. */
function ticks(low, high, count, least = 0) {
  const rough = Math.max(least, (high - low) / count);
  const power = 10 ** Math.floor(Math.log10(rough) + 1e-9);
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
  const decimals = clamp(Math.ceil(-Math.log10(step) - 1e-9), 0, 8);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) found.push([k * step, (k * step).toFixed(decimals)]);
  return found;
}

/** Round dates between two times in seconds since 1970, about `count`, each with its text. */
function dates(low, high, count) {
  const [minute, hour, day] = [60, 3600, 86400];
  const steps = [1, 5, 15, 60, 5 * minute, 15 * minute, hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 7 * day, 14 * day];
  let step = steps.find((seconds) => seconds >= (high - low) / count);
  for (let days = 30; !step; days *= 2) if (days * day >= (high - low) / count) step = days * day;
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) {
    const text = new Date(1000 * k * step).toISOString();
    found.push([k * step, step < minute ? text.slice(11, 19) : step < day ? text.slice(5, 16).replace("T", " ") : text.slice(0, 10)]);
  }
  return found;
}

class Rows {
  constructor(viewer) {
    Object.assign(this, { viewer, form: viewer.form, legend: viewer.root.querySelector(".legend") });
    this.hidden = new Set(viewer.signals.flatMap(([, tiles]) => tiles.slice(NUM_SHOWN_INITIALLY).map(({ run }) => run)));
    this.plots = viewer.root.querySelectorAll("canvas");
    for (const plot of this.plots) viewer.listen(plot, MARGIN.left, MARGIN.right);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Reads the lines of a signal, and creates the legend. */
  build() {
    const { tiles, first } = this.viewer;
    this.points = Math.ceil(first.count / first.step);
    this.mostZoom = Math.max(1, this.points / (first.step === 1 ? 8 : 200));
    this.trained = first.trained ? bytes(first.trained) : [];
    const floats = (key) => new Float32Array(bytes(key).buffer);
    this.truth = { values: floats(first.truth), colour: "--text", dash: "solid", width: 1.8 };
    this.lines = [];
    const entries = tiles.map((tile, k) => {
      if (tile.reason) return make("span", { className: "missing" }, caption(tile)[0], tile.reason);
      const line = {
        run: tile.run, values: floats(tile.reconstruction), error: floats(tile.error), width: 1.3,
        colour: `--c${k % NUM_COLOURS}`, dash: Object.keys(DASHES)[Math.floor(k / NUM_COLOURS) % 3],
      };
      this.lines.unshift(line);  // lines are drawn in this order: the first run is on top
      const box = make("input", { type: "checkbox", checked: !this.hidden.has(tile.run) });
      box.addEventListener("input", () => this.hidden[box.checked ? "delete" : "add"](tile.run));
      return make("label", {}, box, this.swatch(line), ...caption(tile));
    });
    const dot = this.trained.length ? [make("span", {}, make("i", { className: "dot" }), "trained sample, shown if there is space")] : [];
    this.legend.replaceChildren(make("span", {}, this.swatch(this.truth), "ground truth"), ...dot, ...entries);
  }

  swatch({ colour, dash }) {
    const swatch = make("i", { className: "swatch" });
    swatch.style.borderTop = `3px ${dash} var(${colour})`;
    return swatch;
  }

  draw() {
    cancelAnimationFrame(this.request);
    this.request = requestAnimationFrame(() => {
      const { zoom, x, first } = this.viewer;
      this.from = -x / zoom * this.points;
      this.to = this.from + this.points / zoom;
      this.seen = [Math.max(0, Math.floor(this.from) - 1), Math.min(this.points, Math.ceil(this.to) + 1)];
      const per = first.step === 1 ? 1 : 2;  // numbers per point: its value, or minimum and maximum of a range
      const part = (array, k) => array.subarray((per * this.form.channel.value + k) * this.points).subarray(0, this.points);
      const line = (of, array) => ({ ...of, low: part(array, 0), high: part(array, per - 1) });
      const shown = this.lines.filter(({ run }) => !this.hidden.has(run));
      const truth = line(this.truth, this.truth.values);
      // the plot shows the range of the ground truth, extended by a quarter; values outside are clipped
      const [low, high] = this.bounds(truth);
      const margin = Math.max((high - low) / 4, 0.01);
      const within = low <= high ? [low - margin, high + margin] : [0, 1];
      this.plot(this.plots[0], "value", within, shown.map((of) => line(of, of.values)), truth);
      const errors = shown.map((of) => line(of, of.error));
      const reach = 1.05 * Math.max(1e-6, ...errors.flatMap((of) => this.bounds(of).map(Math.abs)).filter(Number.isFinite));
      this.plot(this.plots[1], "reconstruction − ground truth", [-reach, reach], errors);
    });
  }

  /** Minimum and maximum of a line over the visible points. */
  bounds({ low, high }) {
    const finite = (array) => array.subarray(...this.seen).filter(Number.isFinite);
    return [finite(low).reduce((a, b) => Math.min(a, b), Infinity), finite(high).reduce((a, b) => Math.max(a, b), -Infinity)];
  }

  /** Draws axes and lines into a canvas whose vertical axis is [low, high]. */
  plot(canvas, title, [low, high], lines, truth = null) {
    const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!width || !height) return;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const [left, right, top, bottom] = [MARGIN.left, width - MARGIN.right, MARGIN.top, height - MARGIN.bottom];
    const x = (point) => left + (point + 0.5 - this.from) / (this.to - this.from) * (right - left);
    const y = (value) => clamp(bottom - (value - low) / (high - low) * (bottom - top), top - 9, bottom + 9);  // also for infinity
    const colour = (name) => getComputedStyle(canvas).getPropertyValue(name).trim();
    const { count, step, x: axis, low: zero, high: one } = this.viewer.first;
    // values in the user's units; errors have no offset
    const [gain, bias] = [one - zero, truth ? zero : 0];

    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    Object.assign(context, { font: "12px system-ui, sans-serif", strokeStyle: colour("--line"), fillStyle: colour("--faint") });
    const write = (text, x, y, textAlign) => Object.assign(context, { textAlign, textBaseline: "middle" }).fillText(text, x, y);
    for (const [shown, text] of ticks(low * gain + bias, high * gain + bias, (bottom - top) / 30)) {
      const height = y((shown - bias) / gain);
      context.strokeRect(left + 0.5, Math.round(height) + 0.5, right - left - 1, 0);
      write(text, left - 7, height, "right");
    }
    const marks = [this.from, this.to].map((point) => axis.start + axis.delta * (point * step - 0.5)).sort((a, b) => a - b);
    const found = (axis.time ? dates : ticks)(...marks, Math.max(2, (right - left) / 110), axis.name === "sample" ? 1 : 0);
    for (const [value, text] of found) {
      const place = Math.round(x(((value - axis.start) / axis.delta + 0.5) / step - 0.5)) + 0.5;
      context.strokeRect(place, top + 0.5, 0, bottom - top - 1);
      write(text, place, bottom + 12, "center");
    }
    context.strokeRect(left + 0.5, top + 0.5, right - left - 1, bottom - top - 1);
    context.fillStyle = colour("--text");
    write(title, left, top / 2, "left");
    write(axis.name, right, top / 2, "right");

    context.beginPath();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    const ranged = step > 1 || x(1) - x(0) < 0.25;
    // the ground truth is behind the runs as a line, and in front of them as the two edges of a range
    for (const line of truth ? (ranged ? [...lines, truth] : [truth, ...lines]) : lines) {
      Object.assign(context, { strokeStyle: colour(line.colour), lineWidth: line.width, lineJoin: "round" });
      context.setLineDash(ranged ? [] : DASHES[line.dash]);
      const columns = this.columns(line, x, ranged);
      for (const ends of !ranged ? [[1]] : line === truth ? [[1], [2]] : [[1, 2]]) this.stroke(context, columns, ends, y);
    }
    if (truth) this.dots(context, truth.low, x, y);
    const [start, end] = [Math.ceil(this.from - 1e-9) * step + 1, Math.min(count, Math.ceil(this.to - 1e-9) * step)];
    canvas.ariaLabel = `${title} of ${this.viewer.name}, samples ${start} to ${end} of ${count}; plus, minus and arrows move both`;
  }

  /** Position, minimum and maximum of every visible point, or of every pixel column if ranges are drawn. */
  columns({ low, high }, x, ranged) {
    const found = [];
    for (let k = this.seen[0]; k < this.seen[1]; k++) {
      const place = ranged ? Math.floor(x(k)) + 0.5 : x(k);
      const last = found.at(-1);
      if (last?.[0] !== place) found.push([place, low[k], high[k]]);
      else if (Number.isNaN(last[1])) last.splice(1, 2, low[k], high[k]);
      else if (!Number.isNaN(low[k])) last.splice(1, 2, Math.min(last[1], low[k]), Math.max(last[2], high[k]));
    }
    return found;
  }

  /** Draws a line through the given ends (1: minimum, 2: maximum) of all columns, with gaps at NaN. */
  stroke(context, columns, ends, y) {
    context.beginPath();
    let pen = "moveTo";
    for (const column of columns) {
      if (Number.isNaN(column[1])) pen = "moveTo";
      else for (const end of ends) {
        context[pen](column[0], y(column[end]));
        pen = "lineTo";
      }
    }
    context.stroke();
  }

  /** Marks trained samples by dots on the ground truth, if they are at least 6 pixels apart. */
  dots(context, truth, x, y) {
    const places = Array.from(this.trained.keys()).slice(...this.seen).filter((k) => this.trained[k]);
    const space = (x(this.seen[1]) - x(this.seen[0])) / places.length;
    if (space < 6) return;
    for (const k of places) {
      context.beginPath();
      context.arc(x(k), y(truth[k]), Math.min(3, space / 3), 0, 2 * Math.PI);
      context.fill();
    }
  }
}

// -- the viewers are created when the page is loaded ----------------------------------------------------------------------

performance.mark("tables");
document.addEventListener("DOMContentLoaded", () => {
  const signals = JSON.parse(content("signals"));
  for (const root of document.querySelectorAll(".viewer")) new Viewer(root, signals[root.dataset.number]);
  performance.mark("viewers");
});
