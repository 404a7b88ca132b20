// SPDX-License-Identifier: Apache-2.0
// Reading a chart point by point, with the keyboard, a pointer or a screen reader. A chart gives its
// stops, the places where it has values; the cursor goes from one to the next and tells the values
// in the readout below the chart, which is a live region.
//
//   stop: {x or y: pixels, label: text, values: [{lane, text, value, x, y}]}

const cursor_hint = "← → values · ↑ ↓ one series · Esc ends";

/** Returns show(stops, layer, area, lanes): to be called after each drawing. */
function add_cursor(plot, readout) {
  let stops = [], layer = null, area = null, lanes = [];
  let index = null, lane = null;  // no index: not reading; no lane: all of them

  function show_stop() {
    layer.replaceChildren();
    plot.classList.toggle("one-lane", index !== null && lane !== null);
    for (const part of plot.querySelectorAll("[data-lane]")) {
      part.classList.toggle("picked", lane !== null && part.getAttribute("data-lane") === lanes[lane]);
    }
    if (index === null) {
      delete readout.dataset.index;
      readout.replaceChildren(el("span.hint", null, cursor_hint));
      return;
    }
    const stop = stops[index];
    const values = stop.values.filter((value) => lane === null || value.lane === lanes[lane]);
    draw_stop(layer, area, stop, values);
    readout.dataset.index = index;
    readout.replaceChildren(el("b", null, stop.label), ...values.flatMap((value) => [" ",
      el("span.value", { "data-lane": value.lane, "data-value": value.value },
        (value.lane ? value.lane + "\u00a0" : "") + value.text)]));
    if (values.length === 0) readout.append(` no value${lane === null ? "" : " of " + lanes[lane]} here`);
  }

  function go_to(next) {
    index = Math.min(Math.max(next, 0), stops.length - 1);
    show_stop();
  }

  function next_lane(step) {
    const count = lanes.length + 1;  // the last is: all
    const at = ((lane ?? lanes.length) + step + count) % count;
    lane = at === lanes.length ? null : at;
    go_to(index ?? 0);
  }

  plot.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || stops.length === 0) return;
    const many = lanes.length > 1;
    const moves = {
      ArrowRight: () => go_to((index ?? -1) + 1),
      ArrowLeft: () => go_to((index ?? stops.length) - 1),
      ArrowDown: () => (many ? next_lane(1) : go_to((index ?? -1) + 1)),
      ArrowUp: () => (many ? next_lane(-1) : go_to((index ?? stops.length) - 1)),
      PageDown: () => go_to((index ?? -1) + 10),
      PageUp: () => go_to((index ?? stops.length) - 10),
      Home: () => go_to(0),
      End: () => go_to(stops.length - 1),
      Escape: () => { index = lane = null; show_stop(); },
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  });

  plot.addEventListener("pointermove", (event) => {
    if (stops.length === 0) return;
    const box = plot.firstElementChild.getBoundingClientRect();
    const scale = area.width / box.width;  // drawn size to shown size
    const at = { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
    const distance = (stop) => Math.abs("x" in stop ? stop.x - at.x : stop.y - at.y);
    let nearest = 0;
    stops.forEach((stop, i) => { if (distance(stop) < distance(stops[nearest])) nearest = i; });
    if (nearest !== index) go_to(nearest);
  });
  plot.addEventListener("pointerleave", () => {
    if (document.activeElement === plot) return;
    index = lane = null;
    if (layer) show_stop();
  });

  return (new_stops, new_layer, new_area, new_lanes) => {
    [stops, layer, area, lanes] = [new_stops, new_layer, new_area, new_lanes];
    if (index !== null && index >= stops.length) index = null;
    show_stop();
  };
}

/** A line through the stop and a ring around each value; rows of bars get a frame instead. */
function draw_stop(layer, area, stop, values) {
  if ("x" in stop) {
    layer.append(svg("path.cursor-line", { d: `M${round(stop.x)} ${area.top}V${area.bottom}` }));
  } else {
    layer.append(svg("rect.cursor-frame", { x: 0.75, y: stop.y - stop.height / 2,
      width: area.width - 1.5, height: stop.height, rx: 3 }));
  }
  for (const value of values) {
    if (!is_number(value.y)) continue;
    layer.append(svg("circle.cursor-ring", { cx: round(stop.x), cy: round(value.y), r: 5.5 }));
  }
}
