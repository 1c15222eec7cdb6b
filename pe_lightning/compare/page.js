"use strict";

// -- tables: click or press a head to sort; a second time turns the order round ------------------------------------------

function sortTable(table, column, direction) {
  const body = table.tBodies[0];
  const key = (row) => row.cells[column].dataset.order;
  const numeric = column > 0;
  const rows = Array.from(body.rows);
  rows.sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (numeric && (a === "" || b === "")) return (a === "") - (b === "");  // nothing to sort by: last, either way round
    return direction * (numeric ? a - b : a.localeCompare(b, undefined, { numeric: true }));
  });
  body.append(...rows);
}

for (const table of document.querySelectorAll("table.scores")) {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const first = column === 0 ? "ascending" : "descending";
    const second = column === 0 ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? second : first;
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", order);
    sortTable(table, column, order === "ascending" ? 1 : -1);
  }));
}

// -- pictures ------------------------------------------------------------------------------------------------------------

const HEAT = [[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]];
const MOST_ZOOM = 64;
const uri = (key) => document.getElementById(key).textContent;

/** An element with properties and children; text is never read as HTML. */
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

function picture(key, alternative) {
  const image = make("img", { alt: alternative, draggable: false });
  image.src = uri(key);
  return image;
}

/** Mean absolute error over the channels, black at 0 to pale yellow at `full` and above. */
async function drawError(canvas, truthKey, pictureKey, full) {
  const [truth, made] = [picture(truthKey, ""), picture(pictureKey, "")];
  await Promise.all([truth.decode(), made.decode()]);
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

class Viewer {
  constructor(root, signals, number) {
    Object.assign(this, { root, signals, zoom: 1, x: 0, y: 0, mode: "reconstruction" });
    this.signal = make("select", { ariaLabel: "signal" }, ...signals.map((s, k) => make("option", { value: k }, s.name)));
    this.signal.addEventListener("change", () => this.build());
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
    const hint = make("span", { className: "data" }, "Wheel or + and − zoom, dragging or arrows move, in all pictures at once; 0 resets.");
    root.replaceChildren(
      make("div", { className: "controls" }, this.signal, choices, this.splitLabel, this.fullLabel, this.reset, hint), this.tiles);
    new ResizeObserver(() => this.place()).observe(this.tiles);
    this.build();
  }

  /** The tiles of the chosen signal: ground truth, then every run in the order of the table. */
  build() {
    const { name, tiles } = this.signals[this.signal.value];
    this.splitLabel.hidden = this.mode !== "slider";
    this.fullLabel.hidden = this.mode !== "error";
    const shown = tiles.find((tile) => tile.picture);
    const figures = [];
    if (shown) figures.push(this.figure([this.layer(picture(shown.truth, `${name}, ground truth`))], shown.size, "ground truth", ""));
    for (const tile of tiles) {
      const title = tile.group === tile.run ? tile.run : tile.group;
      const below = tile.group === tile.run ? tile.psnr : `${tile.psnr}, ${tile.run}`;
      if (!tile.picture) {
        const why = make("div", { className: "why" }, tile.reason);
        figures.push(this.figure([why], shown ? shown.size : [4, 3], title, below));
        continue;
      }
      const layers = [];
      if (this.mode === "error") {
        const canvas = make("canvas", { role: "img", ariaLabel: `${name}, error of ${tile.run}` });
        drawError(canvas, tile.truth, tile.picture, Number(this.full.value));
        layers.push(this.layer(canvas));
      } else {
        layers.push(this.layer(picture(tile.picture, `${name}, ${tile.run}`)));
      }
      if (this.mode === "slider") {
        const over = this.layer(picture(tile.truth, ""));
        over.classList.add("over");
        layers.push(over, this.edge());
      }
      figures.push(this.figure(layers, tile.size, title, below));
    }
    this.width = shown ? shown.size[0] : 1;
    this.tiles.replaceChildren(...figures);
    this.place();
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
    const view = make("div", { className: "view", tabIndex: 0, role: "group", ariaLabel: `${title}; plus, minus and arrows move all` }, ...layers);
    view.style.aspectRatio = `${width} / ${height}`;
    this.listen(view);
    return make("figure", {}, view, make("figcaption", {}, make("strong", {}, title), below));
  }

  listen(view) {
    const at = (event) => {
      const box = view.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    view.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomAt(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), ...at(event));
    }, { passive: false });
    let last = null;
    view.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      last = at(event);
      view.setPointerCapture(event.pointerId);
      view.classList.add("dragged");
    });
    view.addEventListener("pointermove", (event) => {
      if (!last) return;
      const now = at(event);
      this.show(this.zoom, this.x + now[0] - last[0], this.y + now[1] - last[1]);
      last = now;
    });
    for (const end of ["pointerup", "pointercancel"]) {
      view.addEventListener(end, () => { last = null; view.classList.remove("dragged"); });
    }
    view.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in moves) this.show(this.zoom, this.x + moves[event.key][0], this.y + moves[event.key][1]);
      else if (event.key === "+" || event.key === "=") this.zoomAt(1.25, 0.5, 0.5);
      else if (event.key === "-") this.zoomAt(0.8, 0.5, 0.5);
      else if (event.key === "0") this.show(1, 0, 0);
      else return;
      event.preventDefault();
    });
  }

  /** Zooms by a factor; the point (u, v) of the view stays where it is. */
  zoomAt(factor, u, v) {
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

performance.mark("tables");
document.addEventListener("DOMContentLoaded", () => {
  const data = JSON.parse(document.getElementById("viewers").textContent);
  for (const root of document.querySelectorAll(".viewer")) new Viewer(root, data[root.dataset.viewer], root.dataset.viewer);
  performance.mark("viewers");
});
