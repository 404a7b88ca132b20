// SPDX-License-Identifier: Apache-2.0
// Charts of lines, and of areas one upon another. Points of a lane are {x, y}, ordered by x; where y
// is no number the line has a gap. Not every point of a long lane gets a marker.

/**
 * lanes: [{name, style, points, area}]. x: {label, tick, text, kind: "linear" | "log" | "rank", names}.
 * y: {label, tick, text, most}. levels: [{y, text}], marks: [{x, text}]. stacked: areas add up.
 * x and marks may be functions, asked at each drawing. The rest as for chart().
 */
function line_chart(options) {
  const { lanes, y, stacked = false } = options;
  const current = (value) => (typeof value === "function" ? value() : value);
  const draw = (root, width) => {
    const x = current(options.x);
    const tall = options.wide ? 360 : 250;
    const shown = (stacked ? stack(lanes) : lanes.map((lane) => ({ ...lane, tops: lane.points })))
      .map((lane) => ({ ...lane, tops: lane.tops.map((point) => ({ ...point, at: x.of ? x.of(point) : point.x }))
        .filter((point) => is_number(point.at) && (x.kind !== "log" || point.at > 0)) }));
    const levels = options.levels ?? [];
    const highest = highest_of([...levels, ...shown.flatMap((lane) => lane.tops)].map((point) => point.y ?? 0), 0);
    const end = Math.min(nice_end(highest * 1.04, 5), y.most ?? Infinity);
    const area = draw_axes(root, { width, height: width < 480 ? Math.min(tall, 300) : tall,
      x: { ...x, scale: x_scale_of(x, shown) },
      y: { ...y, scale: (range, max_ticks) => linear_scale([0, end], range, max_ticks) } });
    levels.forEach((level) => draw_level(root, area, level.y, level.text));
    draw_lanes(root, area, shown, options.id, stacked);
    (current(options.marks) ?? []).forEach((mark, row) => draw_mark(root, area, mark.x, mark.text, row));
    return { stops: stops_of(shown, area, x, y, stacked), area };
  };
  const summary = lanes.map((lane) => summary_of(lane, y.text)).join(" ");
  return chart({ ...options, summary, draw });
}

function x_scale_of(x, lanes) {
  const values = lanes.flatMap((lane) => lane.tops.map((point) => point.at));
  const low = lowest_of(values), high = highest_of(values);
  if (values.length === 0) return (range, max_ticks) => linear_scale([0, 1], range, max_ticks);
  if (x.kind === "rank") return (range) => rank_scale(x.names.length, range);
  if (x.kind === "log") return (range) => log_scale([low, high], range);
  return (range, max_ticks) => linear_scale([Math.min(0, low), high], range, max_ticks);
}

/** Each lane upon those before it: `tops` and `floors` are sums, `own` the lane's value. */
function stack(lanes) {
  const sums = new Map();
  return lanes.map((lane) => {
    const floors = lane.points.map((point) => sums.get(point.x) ?? 0);
    const tops = lane.points.map((point, at) => ({ ...point, own: point.y, floor: floors[at], y: floors[at] + (point.y ?? 0) }));
    for (const point of tops) sums.set(point.x, point.y);
    return { ...lane, tops };
  });
}

function draw_lanes(root, area, lanes, id, stacked) {
  const layer = svg("g.lanes");
  root.append(layer);
  const place = (point) => `${round(area.x(point.at))} ${round(area.y(point.y))}`;
  lanes.forEach((lane, index) => {
    const style = lane_style(lane.style);
    const group = svg("g.lane", { "data-lane": lane.name });
    if (stacked && lane.tops.length > 0) {
      const pattern = `${id}-fill-${index}`;
      const back = [...lane.tops].reverse().map((point) => place({ ...point, y: point.floor }));
      group.append(hatching(pattern, style),
        svg("path.area", { d: `M${[...lane.tops.map(place), ...back].join("L")}Z`, fill: `url(#${pattern})` }));
    }
    let path = "", open = false;
    for (const point of lane.tops) {
      if (is_number(point.y)) path += (open ? "L" : "M") + place(point);
      open = is_number(point.y);
    }
    group.append(svg("path.line." + style.class, { d: path, "stroke-dasharray": style.dash }));
    if (style.marker) group.append(...markers_of(lane, style, area, index));
    layer.append(group);
  });
}

/** About one marker in 14 pixels; lanes begin at different points, so that theirs do not coincide. */
function markers_of(lane, style, area, index) {
  const every = Math.max(1, Math.ceil((14 * lane.tops.length) / (area.right - area.left)));
  const last = lane.tops.length - 1;
  return lane.tops
    .filter((point, at) => is_number(point.y) && (at === last || at % every === index % every))
    .map((point) => lane_marker(style, area.x(point.at), area.y(point.y),
      { "data-x": point.at, "data-value": point.own ?? point.y }));
}

function stops_of(lanes, area, x, y, stacked) {
  const by_x = new Map();
  for (const lane of lanes) {
    for (const point of lane.tops) {
      if (!is_number(point.y)) continue;
      if (!by_x.has(point.at)) by_x.set(point.at, { x: area.x(point.at), label: x.text(point.at, point), values: [] });
      const value = point.own ?? point.y;
      by_x.get(point.at).values.push({ lane: lane.name, value, text: y.text(value), y: area.y(point.y), sum: point.y });
    }
  }
  const stops = [...by_x.entries()].sort((a, b) => a[0] - b[0]).map((entry) => entry[1]);
  for (const stop of stacked && lanes.length > 1 ? stops : []) {
    const sum = stop.values[stop.values.length - 1].sum;
    stop.values.push({ lane: "all", value: sum, text: y.text(sum) });
  }
  return stops;
}

/** For those who hear a chart: where a lane begins, ends, and how far it goes. */
function summary_of(lane, text) {
  const values = lane.points.map((point) => point.y).filter(is_number);
  if (values.length === 0) return `${lane.name}: no values.`;
  return `${lane.name}: ${values.length} points, from ${text(values[0])} to ${text(values[values.length - 1])}, ` +
    `lowest ${text(lowest_of(values))}, highest ${text(highest_of(values))}.`;
}
