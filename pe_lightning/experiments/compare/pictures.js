// -- pictures, and frames of videos and volumes --------------------------------------------------------------------------

const HEAT = [[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]];
const MOST_ZOOM = 64;

function picture(key, alternative) {
  const image = make("img", { alt: alternative, draggable: false });
  image.src = content(key);
  return image;
}

/** Mean absolute error over the channels, black at 0 to pale yellow at `full` and above. */
async function drawError(canvas, truthKey, pictureKey, full) {
  canvas.wanted = pictureKey;
  const [truth, made] = [picture(truthKey, ""), picture(pictureKey, "")];
  await Promise.all([truth.decode(), made.decode()]);
  if (canvas.wanted !== pictureKey) return;  // another frame was chosen meanwhile
  const [width, height] = [made.naturalWidth, made.naturalHeight];
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const pixels = (image) => {
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, width, height);
  };
  const [a, result] = [pixels(truth).data, pixels(made)];
  const b = result.data;
  for (let k = 0; k < b.length; k += 4) {
    const error = (Math.abs(a[k] - b[k]) + Math.abs(a[k + 1] - b[k + 1]) + Math.abs(a[k + 2] - b[k + 2])) / 765;
    const position = Math.min(error / full, 1) * (HEAT.length - 1);
    const stop = Math.min(Math.floor(position), HEAT.length - 2);
    for (let c = 0; c < 3; c++) b[k + c] = HEAT[stop][c] + (position - stop) * (HEAT[stop + 1][c] - HEAT[stop][c]);
  }
  context.putImageData(result, 0, 0);
}

class PictureViewer {
  constructor(root, signals, number) {
    Object.assign(this, { root, signals, zoom: 1, x: 0, y: 0, mode: "reconstruction", draw: [] });
    this.signal = chooser(signals, () => this.build());
    this.frame = make("input", { type: "range", min: 0, step: 1, ariaLabel: "frame" });
    this.frame.addEventListener("input", () => this.turn());
    this.frameText = make("output", { className: "number" });
    this.frameLabel = make("label", { className: "frames" }, this.frame, this.frameText);
    const modes = [["reconstruction", "reconstructions"], ["slider", "slider against ground truth"], ["error", "error maps"]];
    const choices = make("fieldset", { ariaLabel: "view" }, ...modes.map(([value, text]) => {
      const radio = make("input", { type: "radio", name: `view-${number}`, value, checked: value === this.mode });
      radio.addEventListener("change", () => { this.mode = value; this.build(); });
      return make("label", {}, radio, text);
    }));
    this.split = make("input", { type: "range", min: 0, max: 100, value: 50, step: 0.5, ariaLabel: "share of ground truth" });
    this.split.addEventListener("input", () => this.place());
    this.splitLabel = make("label", {}, "reconstruction", this.split, "ground truth");
    const scales = [0.02, 0.05, 0.1, 0.2, 0.5, 1];
    this.full = make("select", {}, ...scales.map((s) => make("option", { value: s, selected: s === 0.2 }, String(s))));
    this.full.addEventListener("change", () => this.build());
    this.fullLabel = make("label", {}, "brightest at an error of", this.full);
    this.reset = make("button", { type: "button" }, "whole picture");
    this.reset.addEventListener("click", () => this.show(1, 0, 0));
    this.tiles = make("div", { className: "tiles" });
    this.hint = make("span", { className: "data" });
    root.replaceChildren(
      make("div", { className: "controls" }, this.signal, choices, this.frameLabel, this.splitLabel, this.fullLabel, this.reset,
        this.hint),
      this.tiles);
    new ResizeObserver(() => this.place()).observe(this.tiles);
    this.build();
  }

  /** The tiles of the chosen signal: ground truth, then every run in the order of the table. */
  build() {
    const { name, tiles, frames, what, size } = this.chosen = this.signals[this.signal.value];
    if (this.frame.max !== String(frames.length - 1)) {
      this.frame.max = frames.length - 1;
      this.frame.value = Math.floor(frames.length / 2);
    }
    this.frame.ariaLabel = what;
    this.frameLabel.hidden = frames.length < 2;
    this.splitLabel.hidden = this.mode !== "slider";
    this.fullLabel.hidden = this.mode !== "error";
    this.hint.textContent = "Wheel or + and − zoom, dragging or arrows move, in all pictures at once; 0 resets."
      + (frames.length < 2 ? "" : ` Comma and full stop turn to another ${what}.`);
    this.draw = [];
    const figures = [];
    const known = tiles.find((tile) => tile.pictures && tile.truth.length);
    if (known) figures.push(this.figure([this.layer(this.image(known.truth, `${name}, ground truth`))], size, "ground truth", ""));
    for (const tile of tiles) {
      const [title, below] = caption(tile);
      const why = !tile.pictures ? tile.reason : this.mode !== "reconstruction" && !tile.truth.length ? "no ground truth" : "";
      const layers = why ? [make("div", { className: "why" }, why)] : this.layers(tile, name);
      figures.push(this.figure(layers, size, title, below));
    }
    this.width = size[0];
    this.tiles.replaceChildren(...figures);
    this.turn();
    this.place();
  }

  /** What a tile shows in this mode. */
  layers(tile, name) {
    if (this.mode === "error") {
      const canvas = make("canvas", { role: "img", ariaLabel: `${name}, error of ${tile.run}` });
      this.draw.push((k) => drawError(canvas, tile.truth[k], tile.pictures[k], Number(this.full.value)));
      return [this.layer(canvas)];
    }
    const layers = [this.layer(this.image(tile.pictures, `${name}, ${tile.run}`))];
    if (this.mode === "slider") {
      const over = this.layer(this.image(tile.truth, ""));
      over.classList.add("over");
      layers.push(over, this.edge());
    }
    return layers;
  }

  /** An image that follows the chosen frame. */
  image(keys, alternative) {
    const image = picture(keys[this.frame.value], alternative);
    this.draw.push((k) => { image.src = content(keys[k]); });
    return image;
  }

  /** Shows the chosen frame in all tiles. */
  turn() {
    const { frames, count, what, rate } = this.chosen;
    const number = Number(this.frame.value);
    const time = what === "frame" && rate ? ` (${(frames[number] / rate).toFixed(2)} s)` : "";
    this.frameText.textContent = `${what} ${frames[number] + 1} of ${count}${time}`;
    for (const draw of this.draw) draw(number);
  }

  layer(element) {
    return make("div", { className: "layer" }, element);
  }

  edge() {
    const edge = make("div", { className: "edge" });
    edge.addEventListener("pointerdown", (event) => {
      event.stopPropagation();
      edge.setPointerCapture(event.pointerId);
    });
    edge.addEventListener("pointermove", (event) => {
      if (!edge.hasPointerCapture(event.pointerId)) return;
      const box = edge.parentElement.getBoundingClientRect();
      this.split.value = 100 * (event.clientX - box.left) / box.width;
      this.place();
    });
    return edge;
  }

  figure(layers, [width, height], title, below) {
    const label = `${title}; plus, minus and arrows move all`;
    const view = make("div", { className: "view", tabIndex: 0, role: "group", ariaLabel: label }, ...layers);
    view.style.aspectRatio = `${width} / ${height}`;
    listen(view, {
      zoom: (factor, u, v) => this.zoomAt(factor, u, v),
      move: (du, dv) => this.show(this.zoom, this.x + du, this.y + dv),
      reset: () => this.show(1, 0, 0),
      step: (by) => {
        this.frame.value = Number(this.frame.value) + by;
        this.turn();
      },
    });
    return make("figure", {}, view, make("figcaption", {}, make("strong", {}, title), below));
  }

  /** Zooms by a factor; the point (u, v) of the view stays where it is. */
  zoomAt(factor, u = 0.5, v = 0.5) {
    const zoom = Math.min(Math.max(this.zoom * factor, 1), MOST_ZOOM);
    this.show(zoom, u - (u - this.x) * zoom / this.zoom, v - (v - this.y) * zoom / this.zoom);
  }

  /** Puts the left upper corner of every picture at (x, y), in sides of the view. */
  show(zoom, x, y) {
    this.zoom = zoom;
    this.x = Math.min(Math.max(x, 1 - zoom), 0);
    this.y = Math.min(Math.max(y, 1 - zoom), 0);
    this.place();
  }

  /** One set of variables moves all pictures. */
  place() {
    const style = this.tiles.style;
    style.setProperty("--zoom", this.zoom);
    style.setProperty("--x", this.x);
    style.setProperty("--y", this.y);
    style.setProperty("--split", `${this.split.value}%`);
    const view = this.tiles.querySelector(".view");
    // pixels are shown as squares once they are large enough to be seen
    if (view) this.tiles.classList.toggle("pixels", this.zoom * view.clientWidth / this.width >= 1.5);
  }
}
