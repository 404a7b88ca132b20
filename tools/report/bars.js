// SPDX-License-Identifier: Apache-2.0
// Bars that lie, each with its name before it and its value behind it, so that colour tells nothing
// that text does not. Bars may come in groups with a heading, and with a tick at what bounds them.

/**
 * bars: [{name, group, value, best, style}]. text(value), label: the figure and its unit.
 * The rest as for chart().
 */
function bar_chart(options) {
  const { bars, text, label } = options;
  const draw = (root, width) => {
    const names = Math.min(Math.max(...bars.map((bar) => text_width(bar.name))) + 10, width * 0.4);
    const values = Math.max(...bars.map((bar) => text_width(text(bar.value)))) + 12;
    const most = Math.max(...bars.map((bar) => Math.max(bar.value, bar.best ?? 0))) || 1;
    const scale = (value) => names + (value / most) * (width - names - values);
    const stops = [];
    let y = 24, group = null;
    root.append(svg("text.label", { x: 0, y: 12 }, label));
    for (const bar of bars) {
      if (bar.group && bar.group !== group) {
        root.append(svg("text.group", { x: 0, y: y + 13 }, clipped(bar.group, width)));
        y += 20;
      }
      group = bar.group;
      stops.push(draw_bar(root, bar, { y, names, scale, text }));
      y += 22;
    }
    return { stops, area: { width, height: y + 4, top: 0, bottom: y } };
  };
  const summary = bars.map((bar) => `${bar.group ? bar.group + ", " : ""}${bar.name}: ${text(bar.value)}.`).join(" ");
  return chart({ ...options, lanes: [], summary, draw });
}

function draw_bar(root, bar, { y, names, scale, text }) {
  const style = lane_style(bar.style ?? 0);
  const end = round(scale(bar.value));
  root.append(
    svg("text.name", { x: names - 6, y: y + 14, "text-anchor": "end" }, clipped(bar.name, names - 6)),
    svg("rect.bar." + style.class, {
      x: round(names), y: y + 3, height: 15,
      width: bar.value > 0 ? Math.max(0.5, round(end - names)) : 0,
      "data-name": bar.name, "data-group": bar.group, "data-value": bar.value,
    }));
  const best = is_number(bar.best) ? round(scale(bar.best)) : end;
  if (is_number(bar.best)) root.append(svg("path.best", { d: `M${best} ${y}V${y + 21}`, "data-value": bar.best }));
  root.append(svg("text.value", { x: Math.max(end, best) + 6, y: y + 14 }, text(bar.value)));
  const values = [{ value: bar.value, text: text(bar.value) }];
  if (is_number(bar.best)) values.push({ lane: "optimum", value: bar.best, text: text(bar.best) });
  return { y: y + 10.5, height: 21, label: (bar.group ? bar.group + ", " : "") + bar.name + ":", values };
}

/** As much of a name as there is room for; the readout and the table have the whole. */
function clipped(text, width) {
  const room = Math.max(3, Math.floor(width / glyph_width));
  return text.length <= room ? text : text.slice(0, room - 1) + "…";
}
