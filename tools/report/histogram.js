// SPDX-License-Identifier: Apache-2.0
// How often an operation took how long. Buckets are gathered into bins of a tenth of a decade, or of
// the buckets' own width where that is more: bars of one width on a logarithmic axis, whatever the
// resolution of what was recorded. A bucket counts where it ends.

/** buckets: [{up_to_ns, count}]. Returns [{from, to, count}], without the empty ones. */
function bins_of(buckets) {
  const known = buckets.filter((bucket) => bucket.up_to_ns > 0 && is_number(bucket.count));
  const ends = known.map((bucket) => bucket.up_to_ns).sort((a, b) => a - b);
  const widths = ends.slice(1).map((end, at) => Math.log10(end / ends[at])).sort((a, b) => a - b);
  const width = Math.max(0.1, widths[Math.floor(widths.length / 2)] ?? 0);
  const bins = new Map();
  for (const bucket of known) {
    if (bucket.count === 0) continue;
    const at = Math.ceil(Math.log10(bucket.up_to_ns) / width - 1e-6);
    const bin = bins.get(at) ?? { from: 10 ** ((at - 1) * width), to: 10 ** (at * width), count: 0 };
    bin.count += bucket.count;
    bins.set(at, bin);
  }
  return [...bins.entries()].sort((a, b) => a[0] - b[0]).map((entry) => entry[1]);
}

/** bins, domain: [from, to] in ns, the same for charts that are compared; marks: [{x, text}]. */
function histogram_chart(options) {
  const { bins, domain, marks } = options;
  const total = bins.reduce((sum, bin) => sum + bin.count, 0) || 1;
  const draw = (root, width) => {
    const most = nice_end((1.04 * Math.max(...bins.map((bin) => bin.count))) / total, 4);
    const area = draw_axes(root, {
      width, height: 210,
      x: {
        label: "time of a call, logarithmic", tick: duration_ns,
        scale: (range) => log_scale(domain, range),
      },
      y: {
        label: "share of calls, %", tick: tick_percent,
        scale: (range, max_ticks) => linear_scale([0, Math.min(1, most)], range, max_ticks),
      },
    });
    const stops = bins.map((bin) => {
      const share = bin.count / total;
      const [from, to, y] = [area.x(bin.from), area.x(bin.to), area.y(share)];
      root.append(svg("rect.bar.lane-0", {
        x: round(from + 0.5), width: round(Math.max(1, to - from - 1)),
        y: round(y), height: round(Math.max(0.5, area.bottom - y)),
        "data-from": bin.from, "data-to": bin.to, "data-value": bin.count,
      }));
      return {
        x: (from + to) / 2, label: `${duration_ns(bin.from)} to ${duration_ns(bin.to)}:`,
        values: [{ value: bin.count, text: `${grouped(bin.count)} calls, ${percent(share)}`, y }],
      };
    });
    for (let row = marks.length - 1; row >= 0; --row) {  // names of the first above lines of the last
      draw_mark(root, area, marks[row].x, marks[row].text, area.top + 11 + 14 * row);
    }
    return { stops, area };
  };
  return chart({ ...options, draw });
}
