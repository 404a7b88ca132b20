// SPDX-License-Identifier: Apache-2.0
// A lane is one series of a chart. Each has a colour, a dash, a marker and, as an area, a hatching:
// who cannot tell the colours apart, or prints in grey, has the other three. Colours are in chart.css.

const lane_colours = 8;
const lane_dashes = [null, "7 3", "2 2.5", "9 3 2 3", "4 2", "12 3", "1 3", "6 2 2 2 2 2"];
const lane_markers = [
  "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z",                             // disc
  "M-2.7 -2.7H2.7V2.7H-2.7Z",                                          // square
  "M0 -3.6L3.4 2.4H-3.4Z",                                             // triangle
  "M0 -3.8L3.8 0L0 3.8L-3.8 0Z",                                       // diamond
  "M0 3.6L3.4 -2.4H-3.4Z",                                             // triangle, turned
  "M-1.2 -3.6H1.2V-1.2H3.6V1.2H1.2V3.6H-1.2V1.2H-3.6V-1.2H-1.2Z",      // plus
  "M-3.6 -1.8H3.6V1.8H-3.6Z",                                          // flat bar
];

/** Of the lane at `index`; "best" is what bounds the others. */
function lane_style(index) {
  if (index === "best") return { class: "lane-best", dash: "5 3", marker: null, hatch: 0 };
  return {
    class: "lane-" + (index % lane_colours),
    dash: lane_dashes[index % lane_dashes.length],
    marker: lane_markers[index % lane_markers.length],
    hatch: index % 3,
  };
}

function lane_marker(style, x, y, attributes) {
  return svg("path.point." + style.class,
    { d: style.marker, transform: `translate(${round(x)} ${round(y)})`, ...attributes });
}

/** Fills of areas: plain, stripes, dots; all in the lane's colour. */
function hatching(id, style) {
  const marks = [
    [],
    [svg("path." + style.class, { d: "M-1 7L7 -1M-1 1L1 -1M5 7L7 5", "stroke-width": 1.3 })],
    [svg("circle." + style.class, { cx: 1.5, cy: 1.5, r: 1 }),
     svg("circle." + style.class, { cx: 4.5, cy: 4.5, r: 1 })],
  ][style.hatch];
  return svg("pattern.hatch", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse" },
    svg("rect.tint." + style.class, { width: 6, height: 6 }), marks);
}

/** lanes: [{name, style, area}]. Each with a sample of its line or fill. */
function legend(id, lanes) {
  return el("ul.legend", { "aria-label": "Legend" }, lanes.map((lane, at) => {
    const style = lane_style(lane.style);
    const pattern = `${id}-key-${at}`;
    const sample = svg("svg", { width: 30, height: 12, viewBox: "0 0 30 12", "aria-hidden": "true" },
      lane.area ? [hatching(pattern, style),
        svg("rect", { y: 1, width: 30, height: 10, fill: `url(#${pattern})` })] : null,
      svg("path.line." + style.class,
        { d: lane.area ? "M0 1H30" : "M0 6H30", "stroke-dasharray": style.dash }),
      style.marker ? lane_marker(style, 15, lane.area ? 1 : 6) : null);
    return el("li", null, sample, lane.name);
  }));
}

function round(value) {
  return Math.round(value * 100) / 100;
}
