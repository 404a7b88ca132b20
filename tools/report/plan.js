// SPDX-License-Identifier: Apache-2.0
// The page of `pando plan`: what each capacity would find, by policy, below what any policy could
// find, and the capacity that is recommended.

/** In order of preference. `size`: how much of what the results count is one of what the axis shows. */
const capacity_units = [
  {
    name: "bytes", key: "capacity_bytes", knee: "knee_bytes", label: "GiB", size: 2 ** 30,
    tick: (value) => (value < 1 ? String(value) : grouped(value)), text: (value) => size_bytes(value * 2 ** 30),
  },
  {
    name: "tokens", key: "capacity_tokens", knee: "knee_tokens", label: "tokens", size: 1,
    tick: tick_number, text: (value) => count_of(value, "tokens"),
  },
  {
    name: "blocks", key: "capacity_blocks", knee: "knee_blocks", label: "blocks", size: 1,
    tick: tick_number, text: (value) => count_of(value, "blocks"),
  },
];

function plan_sections(results) {
  const curves = list_of(results.curves)
    .map((curve) => ({
      policy: String(curve.policy), method: curve.method,
      points: list_of(curve.points).filter((point) => is_number(point.hit_ratio_blocks)),
    }))
    .filter((curve) => curve.points.length > 0);
  const units = capacity_units.filter((unit) =>
    curves.some((curve) => curve.points.some((point) => point[unit.key] > 0)));
  return [
    plan_summary(results, units),
    units.length > 0 ? plan_curves(results, curves, units) : null,
    figures_section(results),
  ];
}

function plan_summary(results, units) {
  const recommendation = record_of(results.recommendation);
  const knee = units.find((unit) => recommendation[unit.knee] > 0);
  const shown = tiles([
    knee ? tile(knee.knee, "Recommended", recommendation[knee.knee],
      (value) => knee.text(value / knee.size), "the knee of the curve") : null,
    tile("hit_ratio_blocks_infinite", "Without bound", results.hit_ratio_blocks_infinite, percent, "of blocks found"),
    tile("requests", "Requests", results.requests, grouped),
    tile("unique_blocks", "Unique blocks", results.unique_blocks, compact,
      is_number(results.blocks) ? `of ${compact(results.blocks)}` : null),
    tile("bytes_per_token", "A token takes", results.bytes_per_token, size_bytes,
      results.model ? `of KV, ${results.model}` : "of KV"),
    results.sample_rate < 1 ? tile("sample_rate", "Sampled", results.sample_rate, (value) => percent(value, 2),
      is_number(results.sample_error) ? `error up to ${percent(results.sample_error, 2)}` : null) : null,
  ]);
  const told = [recommendation.text].flat().filter((text) => typeof text === "string" && text !== "");
  const advice = told.length === 0 ? null : el("div.advice", { id: "recommendation" },
    el("h3", null, "Recommendation"), told.map((text) => el("p", null, text)));
  return shown || advice ? section("summary", "Summary", shown, advice) : null;
}

function plan_curves(results, curves, units) {
  let unit = units[0];
  let others = 0;
  const title = "Hit ratio by capacity";
  const bound = results.hit_ratio_blocks_infinite;
  const figure = line_chart({
    id: "curves", title, wide: true, with_legend: true,
    note: "The optimum knows the future: no policy can be above it.",
    lanes: curves.map((curve) => ({
      name: curve.policy, style: curve.policy === "optimum" ? "best" : others++,
      points: curve.points.map((point) => ({ ...point, x: point.capacity_blocks, y: point.hit_ratio_blocks })),
    })),
    x: () => ({
      kind: "log", label: `capacity, ${unit.label}, logarithmic`, tick: unit.tick,
      of: (point) => (is_number(point[unit.key]) ? point[unit.key] / unit.size : null),
      text: (value) => unit.text(value) + ":",
    }),
    y: { label: "hit ratio, % of blocks", most: 1, tick: tick_percent, text: (value) => percent(value) },
    levels: is_number(bound) ? [{ y: bound, text: `without bound ${percent(bound)}` }] : [],
    marks: () => knee_marks(record_of(results.recommendation)[unit.knee], curves, unit),
    table: curves_table(title, curves, units),
  });
  const choice = unit_choice(units, (chosen) => {
    unit = chosen;
    figure.redraw();
  });
  return section("capacity", "Capacity", choice, el("div.charts", null, figure), methods_of(curves));
}

/** Where the recommendation is on the axis, if it is on it. */
function knee_marks(knee, curves, unit) {
  const values = curves.flatMap((curve) => curve.points.map((point) => point[unit.key])).filter((value) => value > 0);
  if (!(knee >= lowest_of(values) && knee <= highest_of(values))) return [];
  return [{ x: knee / unit.size, text: `recommended ${unit.text(knee / unit.size)}` }];
}

function unit_choice(units, choose) {
  if (units.length < 2) return null;
  return el("fieldset.choice", { id: "unit" }, el("legend", null, "Capacity in"), units.map((unit, at) => {
    const input = el("input", { type: "radio", name: "unit", value: unit.name });
    input.checked = at === 0;
    input.addEventListener("change", () => choose(unit));
    return el("label", null, input, " ", unit.label);
  }));
}

function methods_of(curves) {
  const known = curves.filter((curve) => curve.method).map((curve) => `${curve.policy}, ${curve.method}`);
  return known.length > 0 ? el("p.note", { id: "methods" }, `How each curve was found: ${known.join("; ")}.`) : null;
}

/** One row for each capacity that any curve has, one column for each policy. */
function curves_table(caption, curves, units) {
  const rows = new Map();
  curves.forEach((curve, at) => {
    for (const point of curve.points) {
      const key = point.capacity_blocks ?? point.capacity_tokens ?? point.capacity_bytes;
      const row = rows.get(key) ?? { key };
      for (const unit of units) row[unit.key] ??= point[unit.key];
      row["curve-" + at] = point.hit_ratio_blocks;
      rows.set(key, row);
    }
  });
  const columns = [
    ...[...units].reverse().map((unit) => (unit.name === "bytes"
      ? { name: unit.key, label: "capacity", numeric: true, text: size_bytes }
      : { name: unit.key, label: `capacity, ${unit.label}`, numeric: true, text: grouped })),
    ...curves.map((curve, at) =>
      ({ name: "curve-" + at, label: curve.policy, numeric: true, text: (value) => percent(value, 2) })),
  ];
  return table_of({ id: "curves-data", caption, columns, rows: [...rows.values()].sort((a, b) => a.key - b.key) });
}
