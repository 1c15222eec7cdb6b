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

// -- parts of the viewers ------------------------------------------------------------------------------------------------

const content = (key) => document.getElementById(key).textContent;

/** An element with properties and children; text is never read as HTML. */
function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** What a tile is called, and what stands below: a group's runs share its name. */
function caption(tile) {
  const below = [tile.psnr, ...(tile.group === tile.run ? [] : [tile.run]), ...(tile.note ? [tile.note] : [])];
  return [tile.group, below.join(", ")];
}

/** A choice among the signals. */
function chooser(signals, change) {
  const options = signals.map((signal, k) => make("option", { value: k }, signal.name));
  const select = make("select", { ariaLabel: "signal" }, ...options);
  select.addEventListener("change", change);
  return select;
}

/**
 * Wheel, drag and keys of a view, in sides of the view: zoom(factor, u, v) about a point, by default the middle;
 * move(du, dv); reset(); and step(by) to another frame where there are several.
 */
function listen(view, { zoom, move, reset, step = () => {} }) {
  const at = (event) => {
    const box = view.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  view.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), ...at(event));
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
    move(now[0] - last[0], now[1] - last[1]);
    last = now;
  });
  for (const end of ["pointerup", "pointercancel"]) {
    view.addEventListener(end, () => { last = null; view.classList.remove("dragged"); });
  }
  view.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) move(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") reset();
    else if (event.key === ".") step(1);
    else if (event.key === ",") step(-1);
    else return;
    event.preventDefault();
  });
}

// -- all of them, once the page is there ---------------------------------------------------------------------------------

performance.mark("tables");
document.addEventListener("DOMContentLoaded", () => {
  const data = JSON.parse(document.getElementById("viewers").textContent);
  for (const root of document.querySelectorAll(".viewer")) {
    const { kind, signals } = data[root.dataset.viewer];
    kind === "rows" ? new RowViewer(root, signals) : new PictureViewer(root, signals, root.dataset.viewer);
  }
  performance.mark("viewers");
});
