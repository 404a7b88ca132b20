// SPDX-License-Identifier: Apache-2.0
// The page of `pando compare`: one chart for each trace, lines where it was run with three sizes or
// more, else bars; then all rows in a table that sorts.

function compare_sections(results) {
  const rows = list_of(results.rows);
  if (rows.length === 0) return [figures_section(results)];
  return [compare_best(rows), compare_charts(rows), compare_table(rows), figures_section(results)];
}

/** In order of first appearance. */
function distinct(values) {
  return [...new Set(values)];
}

function rows_by_trace(rows) {
  const measured = rows.filter((row) => is_number(ratio_of(row)));
  return distinct(measured.map((row) => String(row.trace)))
    .map((trace) => ({ trace, own: measured.filter((row) => String(row.trace) === trace) }));
}

function ratio_of(row) {
  return is_number(row.hit_ratio_blocks) ? row.hit_ratio_blocks : row.hit_ratio_tokens;
}

/** What sets the sizes of a row apart from those of others: "5%", or "device 5%, host 10%". */
function size_namer(rows) {
  const size = (row, tier) => String(row[tier] ?? "");
  const varying = tier_names.filter((tier) => distinct(rows.map((row) => size(row, tier))).length > 1);
  if (varying.join() === "" || varying.join() === "device") return (row) => size(row, "device") || none;
  return (row) => varying.filter((tier) => size(row, tier) !== "")
    .map((tier) => `${tier} ${size(row, tier)}`).join(", ") || none;
}

function compare_best(rows) {
  const name = size_namer(rows);
  const best = rows_by_trace(rows).map(({ own }) =>
    own.reduce((most, row) => (ratio_of(row) > ratio_of(most) ? row : most)));
  return section("summary", "Summary", tiles([
    tile("traces", "Traces", distinct(rows.map((row) => row.trace)).length, grouped),
    tile("policies", "Policies", distinct(rows.map((row) => row.policy)).length, grouped),
    tile("rows", "Runs", rows.length, grouped),
    ...best.map((row) =>
      tile("best", `Best on ${row.trace}`, ratio_of(row), percent, `${row.policy} at ${name(row)}`)),
  ]));
}

function compare_charts(rows) {
  const policies = distinct(rows.map((row) => String(row.policy)));
  const name = size_namer(rows);
  const charts = rows_by_trace(rows).map(({ trace, own }, at) => {
    const sizes = distinct(own.map(name));
    const once = distinct(own.map((row) => JSON.stringify([row.policy, name(row)]))).length === own.length;
    const draw = sizes.length >= 3 && once ? compare_lines : compare_bars;
    return draw({ id: "trace-" + at, trace, own, sizes, policies, name });
  });
  return charts.length > 0 ? section("traces", "Hit ratio by trace", el("div.charts", null, charts)) : null;
}

function compare_lines({ id, trace, own, sizes, policies, name }) {
  const points_of = (mine, value_of) => mine
    .map((row) => ({ x: sizes.indexOf(name(row)), y: value_of(row) })).sort((a, b) => a.x - b.x);
  const lanes = policies.filter((policy) => own.some((row) => String(row.policy) === policy)).map((policy) => ({
    name: policy, style: policy === "optimum" ? "best" : policies.indexOf(policy),
    points: points_of(own.filter((row) => String(row.policy) === policy), ratio_of),
  }));
  const bounds = sizes.map((size) => own.find((row) => name(row) === size && is_number(row.optimum))).filter(Boolean);
  if (bounds.length > 0 && !policies.includes("optimum")) {
    lanes.push({ name: "optimum", style: "best", points: points_of(bounds, (row) => row.optimum) });
  }
  return line_chart({
    id, title: trace, lanes, with_legend: true, table: trace_table(id, trace, own, name),
    x: {
      kind: "rank", names: sizes, label: "capacity",
      tick: (value) => sizes[value], text: (value) => sizes[value] + ":",
    },
    y: { label: "hit ratio, %", most: 1, tick: tick_percent, text: (value) => percent(value) },
  });
}

function compare_bars({ id, trace, own, sizes, policies, name }) {
  const bars = [...own].sort((a, b) => sizes.indexOf(name(a)) - sizes.indexOf(name(b))).map((row) => ({
    name: String(row.policy), group: name(row) === none ? null : "capacity " + name(row),
    value: ratio_of(row), best: row.optimum, style: policies.indexOf(String(row.policy)),
  }));
  const bounded = own.some((row) => is_number(row.optimum));
  return bar_chart({
    id, title: trace, bars, text: (value) => percent(value), table: trace_table(id, trace, own, name),
    label: bounded ? "hit ratio, %; the upright line is the optimum" : "hit ratio, %",
  });
}

function trace_table(id, trace, own, name) {
  const ratio = { numeric: true, text: (value) => percent(value, 2) };
  const columns = [
    { name: "size", label: "capacity" },
    { name: "policy", label: "policy" },
    { name: "ratio", label: "hit ratio", ...ratio },
    { name: "optimum", label: "optimum", ...ratio },
  ];
  const rows = own.map((row) =>
    ({ size: name(row), policy: row.policy, ratio: ratio_of(row), optimum: row.optimum }));
  return table_of({ id: id + "-data", caption: trace, columns, rows });
}

/** Columns that no row has are left out; what rows have beyond the known is shown as it is. */
function compare_table(rows) {
  const given = (value) => value !== undefined && value !== null && value !== "" && typeof value !== "object";
  const columns = distinct(["trace", "policy", ...rows.flatMap((row) => Object.keys(row))])
    .filter((name) => rows.some((row) => given(row[name])))
    .map((name) => ({
      name, label: label_of(name), numeric: rows.every((row) => !given(row[name]) || is_number(row[name])),
      text: (value) => figure_text([name], value),
    }));
  if (columns.length === 0) return null;
  const share = (row) =>
    (row.optimum > 0 && is_number(row.hit_ratio_blocks) ? row.hit_ratio_blocks / row.optimum : null);
  const shown = rows.map((row) => ({ ...row, of_optimum: share(row) }));
  if (shown.some((row) => row.of_optimum !== null)) {
    columns.push({ name: "of_optimum", label: "of optimum", numeric: true, text: (value) => percent(value) });
  }
  return section("table", "All runs",
    table_of({ id: "runs", caption: "Every trace, policy and size.", columns, rows: shown, sortable: true }));
}
