// -- lines of a plot -----------------------------------------------------------------------------------------------------

/** Round numbers between two bounds, about `count` of them, and how many decimals they need. */
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high; k++) found.push(k * step);
  return [found, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))];
}

const touch = (right, left) => Math.abs(right - left) < 0.01;

/** A line of one value per point, or of a least and a greatest one; an outlined one shows ranges as their two edges. */
class Line {
  constructor(low, high, { colour, width = 1.3, dash = [], outlined = false }) {
    Object.assign(this, { low, high, colour, width, dash, outlined });
  }

  /** Its least and greatest number among the points from `from` to `to`. */
  bounds(from, to) {
    let [low, high] = [Infinity, -Infinity];
    for (let k = from; k < to; k++) {
      if (Number.isFinite(this.low[k]) && this.low[k] < low) low = this.low[k];
      if (Number.isFinite(this.high[k]) && this.high[k] > high) high = this.high[k];
    }
    return [low, high];
  }

  /** Whether ranges are drawn, for points that are so many pixels apart. */
  ranged(apart) {
    return this.low !== this.high || apart < 0.25;
  }

  /** Draws the points from `from` to `to`; where many share a pixel, their range. */
  draw(context, from, to, x, y) {
    const apart = x(1) - x(0);
    context.strokeStyle = context.fillStyle = this.colour;
    context.lineWidth = this.width;
    context.setLineDash(this.dash);
    context.beginPath();
    if (!this.ranged(apart)) this.trace(context, from, to, x, y);
    else if (this.outlined) this.edges(context, this.spans(from, to, x, apart), y);
    else this.fill(context, this.spans(from, to, x, apart), y);
    context.setLineDash([]);
  }

  trace(context, from, to, x, y) {
    let pen = false;
    for (let k = from; k < to; k++) {
      const number = !Number.isNaN(this.low[k]);
      if (number) context[pen ? "lineTo" : "moveTo"](x(k), y(this.low[k]));
      pen = number;
    }
    context.stroke();
  }

  /** Left, right, least and greatest: of every pixel, or of every point where it is wider than that. */
  spans(from, to, x, apart) {
    const found = [];
    for (let k = from; k < to;) {
      let [left, right, low, high] = [x(k) - apart / 2, x(k) + apart / 2, this.low[k], this.high[k]];
      if (apart < 1) [left, right] = [Math.floor(x(k)), Math.floor(x(k)) + 1];
      for (k++; apart < 1 && k < to && x(k) < right; k++) {
        if (!(low <= this.low[k])) low = this.low[k];
        if (!(high >= this.high[k])) high = this.high[k];
      }
      if (low <= high) found.push([left, right, low, high]);  // else there is no number in it
    }
    return found;
  }

  /** Areas that touch the ones before them, so that a steep line has no gaps. */
  fill(context, spans, y) {
    spans.forEach(([left, right, low, high], k) => {
      const [, end, before, above] = spans[Math.max(0, k - 1)];
      const joined = touch(end, left);
      const top = y(joined ? Math.max(high, before) : high) - this.width / 2;
      context.rect(left, top, right - left, y(joined ? Math.min(low, above) : low) + this.width / 2 - top);
    });
    context.fill();
  }

  edges(context, spans, y) {
    for (const edge of [2, 3]) {
      spans.forEach((span, k) => {
        context[k && touch(spans[k - 1][1], span[0]) ? "lineTo" : "moveTo"](span[0], y(span[edge]));
        context.lineTo(span[1], y(span[edge]));
      });
    }
    context.stroke();
  }
}
