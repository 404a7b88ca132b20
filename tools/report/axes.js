// SPDX-License-Identifier: Apache-2.0
// The frame of a chart with two axes: grid, ticks with their names, labels with units. Names of ticks
// that would run into one another are left out.

const glyph_width = 7;  // at most, of a digit at the size of tick names

function text_width(text) {
  return glyph_width * text.length;
}

/**
 * x, y: {label, tick(value): text, scale([from, to], max_ticks): a scale}. The vertical label stands
 * above its axis, so that it reads like text. Returns {width, height, left, right, top, bottom, x, y}.
 */
function draw_axes(root, { width, height, x, y }) {
  const top = 26, bottom = height - 40;
  const y_scale = y.scale([bottom, top], Math.max(2, Math.floor((bottom - top) / 36)));
  const left = Math.ceil(Math.max(...y_scale.ticks.map((value) => text_width(y.tick(value))), 14)) + 8;
  const right = width - 14;
  const x_scale = x.scale([left, right], Math.max(2, Math.floor((right - left) / 64)));
  const axes = svg("g.axes", { "aria-hidden": "true" });
  for (const value of y_scale.ticks) {
    const at = round(y_scale(value));
    axes.append(svg("path.grid", { d: `M${left} ${at}H${right}` }),
      svg("text.tick", { x: left - 6, y: at + 4, "text-anchor": "end" }, y.tick(value)));
  }
  let taken = -Infinity;
  for (const value of x_scale.ticks) {
    const at = round(x_scale(value));
    axes.append(svg("path.grid", { d: `M${at} ${top}V${bottom + 4}` }));
    const text = x.tick(value);
    const half = text_width(text) / 2;
    const middle = Math.max(half, Math.min(at, width - half));
    if (middle - half < taken + 4) continue;
    taken = middle + half;
    axes.append(svg("text.tick", { x: middle, y: bottom + 17, "text-anchor": "middle" }, text));
  }
  axes.append(svg("path.axis", { d: `M${left} ${bottom}H${right}` }),
    svg("text.label", { x: 0, y: 12 }, y.label),
    svg("text.label", { x: right, y: height - 5, "text-anchor": "end" }, x.label));
  root.append(axes);
  return { width, height, left, right, top, bottom, x: x_scale, y: y_scale };
}

/** A vertical line with its name at `y`, to the side where there is room. */
function draw_mark(root, area, value, text, y) {
  const at = round(area.x(value));
  const flip = at + text_width(text) + 8 > area.right;
  root.append(svg("g.mark", { "data-value": value },
    svg("path", { d: `M${at} ${area.top}V${area.bottom}` }),
    svg("text", { x: flip ? at - 5 : at + 5, y, "text-anchor": flip ? "end" : "start" }, text)));
}

/** A horizontal line with its name above its right end. */
function draw_level(root, area, value, text) {
  const at = round(area.y(value));
  root.append(svg("g.level", { "data-value": value },
    svg("path", { d: `M${area.left} ${at}H${area.right}` }),
    svg("text", { x: area.right - 2, y: at - 5, "text-anchor": "end" }, text)));
}
