// SPDX-License-Identifier: Apache-2.0
// What all charts have: heading, legend, the plot that can be focused, the readout, the data as a
// table. A chart is drawn at the width it has, so text keeps its size, and again when that changes;
// for paper at the width of a page.

const paper_widths = { wide: 660, narrow: 312 };  // of A4 with our margins, in CSS pixels
const all_charts = [];

/**
 * id, title, note: text. lanes: [{name, style, area}], shown as a legend where there are several.
 * summary: what a picture cannot tell those who do not see it. table: the same data.
 * draw(root, width): fills the SVG, returns {stops, area: {width, height, top, bottom}}.
 * Returns the figure; its redraw() is for when what draw() shows has changed.
 */
function chart({ id, title, note, lanes = [], with_legend = lanes.length > 1, summary, table, draw,
  wide = false }) {
  const root = svg("svg", { role: "img", "aria-labelledby": `${id}-name ${id}-summary` });
  const plot = el("div.plot", {
    id: id + "-plot", tabindex: "0", role: "application", "aria-roledescription": "chart",
    "aria-labelledby": id + "-title", "aria-describedby": id + "-readout",
  }, root);
  const readout = el("p.readout",
    { id: id + "-readout", role: "status", "aria-live": "polite", "aria-atomic": "true" });
  const show = add_cursor(plot, readout);
  const figure = el(wide ? "figure.chart.wide" : "figure.chart", { id },
    el("figcaption", null,
      el("h3", { id: id + "-title" }, title), note ? el("p.note", null, note) : null),
    with_legend ? legend(id, lanes) : null, plot, readout,
    table ? folded("Data of this chart", table) : null);

  let drawn_width = 0;
  const redraw = (width) => {
    if (!(width > 0) || width === drawn_width) return;
    drawn_width = width;
    root.replaceChildren(
      svg("title", { id: id + "-name" }, title), svg("desc", { id: id + "-summary" }, summary));
    const { stops, area } = draw(root, width);
    root.setAttribute("viewBox", `0 0 ${area.width} ${area.height}`);
    root.setAttribute("width", area.width);
    root.setAttribute("height", area.height);
    const layer = svg("g.cursor", { "aria-hidden": "true" });
    root.append(layer);
    show(stops, layer, area, lanes.map((lane) => lane.name));
  };
  const width_on_screen = () => Math.floor(plot.getBoundingClientRect().width);
  new ResizeObserver(() => redraw(width_on_screen())).observe(plot);
  all_charts.push({
    for_paper: () => redraw(wide ? paper_widths.wide : paper_widths.narrow),
    for_screen: () => redraw(width_on_screen()),
  });
  figure.redraw = () => { drawn_width = 0; redraw(width_on_screen()); };
  return figure;
}

window.addEventListener("beforeprint", () => { for (const one of all_charts) one.for_paper(); });
window.addEventListener("afterprint", () => { for (const one of all_charts) one.for_screen(); });
