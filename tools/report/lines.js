// SPDX-License-Identifier: Apache-2.0
// Charts of lines, and of areas one upon another. Points of a lane are {x, y}, ordered by x; where y
// is no number the line has a gap. Not every point of a long lane gets a marker.

/**
 * lanes: [{name, style, points, area}].
 * x: {label, tick, text, kind: "linear" | "log" | "rank", names, of(point): its place, if not point.x}.
 * y: {label, tick, text, most: where the axis ends at the latest}. stacked: lanes add up.
 * levels: [{y, text}], marks: [{x, text}]. x and marks may be functions, asked at each drawing.
 * The rest as for chart().
 */
function line_chart(options) {
  const { lanes, y, levels = [], stacked = false } = options;
  const current = (value) => (typeof value === "function" ? value() : value);
  const draw = (root, width) => {
    const x = current(options.x);
    const shown = placed(stacked ? stack(lanes) : lanes, x);
    const tops = shown.flatMap((lane) => lane.points);
    const highest = highest_of([...levels, ...tops].map((point) => point.y ?? 0), 0);
    const end = Math.min(nice_end(highest * 1.04, 5), y.most ?? Infinity);
    const area = draw_axes(root, {
      width, height: !options.wide ? 250 : width < 480 ? 300 : 360,
      x: { ...x, scale: x_scale_of(x, tops.map((point) => point.at)) },
      y: { ...y, scale: (range, max_ticks) => linear_scale([0, end], range, max_ticks) },
    });
    for (const level of levels) draw_level(root, area, level.y, level.text);
    draw_lanes(root, area, shown, options.id);
    for (const mark of current(options.marks) ?? []) {
      draw_mark(root, area, mark.x, mark.text, area.bottom - 8);
    }
    return { stops: stops_of(shown, area, x, y, stacked), area };
  };
  const summary = lanes.map((lane) => summary_of(lane, y.text)).join(" ");
  return chart({ ...options, summary, draw });
}

/** Each lane upon those before it: `y` becomes the sum, `floor` where the lane begins. */
function stack(lanes) {
  const sums = new Map();
  return lanes.map((lane) => ({
    ...lane,
    points: lane.points.map((point) => {
      const floor = sums.get(point.x) ?? 0;
      sums.set(point.x, floor + (point.y ?? 0));
      return { ...point, value: point.y, floor, y: floor + (point.y ?? 0) };
    }),
  }));
}

/** With `value`, a point's own, and `at`, its place on the axis; without those that have no place. */
function placed(lanes, x) {
  return lanes.map((lane) => ({
    ...lane,
    points: lane.points
      .map((point) => ({ value: point.y, ...point, at: x.of ? x.of(point) : point.x }))
      .filter((point) => is_number(point.at) && (x.kind !== "log" || point.at > 0)),
  }));
}

function x_scale_of(x, values) {
  if (x.kind === "rank") return (range) => rank_scale(x.names.length, range);
  if (values.length === 0) return (range, max_ticks) => linear_scale([0, 1], range, max_ticks);
  const low = lowest_of(values), high = highest_of(values);
  if (x.kind === "log") return (range) => log_scale([low, high], range);
  return (range, max_ticks) => linear_scale([Math.min(0, low), high], range, max_ticks);
}

function draw_lanes(root, area, lanes, id) {
  const layer = svg("g.lanes");
  root.append(layer);
  const place = (at, y) => `${round(area.x(at))} ${round(area.y(y))}`;
  lanes.forEach((lane, index) => {
    const style = lane_style(lane.style);
    const group = svg("g.lane", { "data-lane": lane.name });
    if (lane.area && lane.points.length > 0) {
      const pattern = `${id}-fill-${index}`;
      const there = lane.points.map((point) => place(point.at, point.y));
      const back = [...lane.points].reverse().map((point) => place(point.at, point.floor ?? 0));
      group.append(hatching(pattern, style),
        svg("path.area", { d: `M${[...there, ...back].join("L")}Z`, fill: `url(#${pattern})` }));
    }
    let path = "", open = false;
    for (const point of lane.points) {
      if (is_number(point.y)) path += (open ? "L" : "M") + place(point.at, point.y);
      open = is_number(point.y);
    }
    group.append(svg("path.line." + style.class, { d: path, "stroke-dasharray": style.dash }));
    if (style.marker) group.append(...markers_of(lane, style, area, index));
    layer.append(group);
  });
}

/** About one marker in 14 pixels; lanes begin at different points, so that theirs do not coincide. */
function markers_of(lane, style, area, index) {
  const every = Math.max(1, Math.ceil((14 * lane.points.length) / (area.right - area.left)));
  const last = lane.points.length - 1;
  return lane.points
    .filter((point, at) => is_number(point.value) && (at === last || at % every === index % every))
    .map((point) => lane_marker(style, area.x(point.at), area.y(point.y),
      { "data-x": point.at, "data-value": point.value }));
}

function stops_of(lanes, area, x, y, stacked) {
  const by_x = new Map();
  for (const lane of lanes) {
    for (const point of lane.points) {
      if (!is_number(point.value)) continue;
      const stop = by_x.get(point.at) ??
        { at: point.at, x: area.x(point.at), label: x.text(point.at, point), values: [], sum: 0 };
      stop.values.push({ lane: lane.name, value: point.value, text: y.text(point.value), y: area.y(point.y) });
      stop.sum += point.value;
      by_x.set(point.at, stop);
    }
  }
  const stops = [...by_x.values()].sort((a, b) => a.at - b.at);
  if (stacked && lanes.length > 1) {
    for (const stop of stops) stop.values.push({ lane: "all", value: stop.sum, text: y.text(stop.sum) });
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
