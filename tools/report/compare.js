// SPDX-License-Identifier: Apache-2.0
// The page of `pando compare`: one chart for each trace, lines where a policy has three sizes or
// more, else bars; then all rows in a table that sorts.

function compare_sections(results) {
  const rows = list_of(results.rows);
  return [rows.length > 0 ? compare_best(rows) : null, rows.length > 0 ? compare_charts(rows) : null,
    rows.length > 0 ? compare_table(rows) : null, figures_section(results)];
}

/** In order of first appearance. */
function distinct(values) {
  return [...new Set(values)];
}

/** What sets the sizes of this row apart from those of others: "5%", or "5%, host 10%". */
function size_names(rows) {
  const varying = tier_names.filter((tier) => distinct(rows.map((row) => row[tier] ?? "")).length > 1);
  const named = varying.length > 0 ? varying : ["device"];
  return (row) => named.filter((tier) => (row[tier] ?? "") !== "")
    .map((tier) => (tier === "device" && named.length === 1 ? String(row[tier]) : `${tier} ${row[tier]}`)).join(", ") || none;
}

function ratio_of(row) {
  return is_number(row.hit_ratio_blocks) ? row.hit_ratio_blocks : row.hit_ratio_tokens;
}

function compare_best(rows) {
  const traces = distinct(rows.map((row) => String(row.trace)));
  const best = traces.map((trace) => rows.filter((row) => String(row.trace) === trace && is_number(ratio_of(row)))
    .reduce((most, row) => (most === null || ratio_of(row) > ratio_of(most) ? row : most), null)).filter(Boolean);
  const name = size_names(rows);
  return section("summary", "Summary", tiles([
    tile("traces", "Traces", traces.length, grouped),
    tile("policies", "Policies", distinct(rows.map((row) => row.policy)).length, grouped),
    tile("rows", "Runs", rows.length, grouped),
    ...best.map((row) => tile("best", `Best on ${row.trace}`, ratio_of(row), percent, `${row.policy} at ${name(row)}`)),
  ]));
}

function compare_charts(rows) {
  const traces = distinct(rows.map((row) => String(row.trace)));
  const policies = distinct(rows.map((row) => String(row.policy)));
  const name = size_names(rows);
  const charts = traces.map((trace, at) => {
    const own = rows.filter((row) => String(row.trace) === trace && is_number(ratio_of(row)));
    if (own.length === 0) return null;
    const sizes = distinct(own.map(name));
    const once = own.every((row) => own.every((other) => row === other || row.policy !== other.policy || name(row) !== name(other)));
    return (sizes.length >= 3 && once ? compare_lines : compare_bars)({ id: "trace-" + at, trace, own, sizes, policies, name });
  }).filter(Boolean);
  return charts.length > 0 ? section("traces", "Hit ratio by trace", el("div.charts", null, charts)) : null;
}

function compare_lines({ id, trace, own, sizes, policies, name }) {
  const present = policies.filter((policy) => own.some((row) => String(row.policy) === policy));
  const lanes = present.map((policy) => ({ name: policy, style: policy === "optimum" ? "best" : policies.indexOf(policy),
    points: own.filter((row) => String(row.policy) === policy)
      .map((row) => ({ x: sizes.indexOf(name(row)), y: ratio_of(row) })).sort((a, b) => a.x - b.x) }));
  const bounds = sizes.map((size, x) => ({ x, y: own.find((row) => name(row) === size && is_number(row.optimum))?.optimum }))
    .filter((point) => is_number(point.y));
  if (bounds.length > 0 && !present.includes("optimum")) lanes.push({ name: "optimum", style: "best", points: bounds });
  return line_chart({ id, title: trace, lanes, with_legend: true, table: trace_table(id, trace, own, name),
    x: { kind: "rank", names: sizes, label: "capacity", tick: (value) => sizes[value], text: (value) => sizes[value] + ":" },
    y: { label: "hit ratio, %", most: 1, tick: tick_percent, text: (value) => percent(value) } });
}

function compare_bars({ id, trace, own, sizes, policies, name }) {
  const bars = [...own].sort((a, b) => sizes.indexOf(name(a)) - sizes.indexOf(name(b)))
    .map((row) => ({ name: String(row.policy), group: sizes.length > 1 || name(row) !== none ? "capacity " + name(row) : null,
      value: ratio_of(row), best: row.optimum, style: policies.indexOf(String(row.policy)) }));
  const bounded = own.some((row) => is_number(row.optimum));
  return bar_chart({ id, title: trace, bars, text: (value) => percent(value), table: trace_table(id, trace, own, name),
    label: bounded ? "hit ratio, %; the upright line is the optimum" : "hit ratio, %" });
}

function trace_table(id, trace, own, name) {
  const ratio = { numeric: true, text: (value) => percent(value, 2) };
  const columns = [{ name: "size", label: "capacity" }, { name: "policy", label: "policy" },
    { name: "ratio", label: "hit ratio", ...ratio }, { name: "optimum", label: "optimum", ...ratio }];
  return table_of({ id: id + "-data", caption: trace, columns,
    rows: own.map((row) => ({ size: name(row), policy: row.policy, ratio: ratio_of(row), optimum: row.optimum })) });
}

/** Columns that no row has are left out; what rows have beyond the known is shown as it is. */
function compare_table(rows) {
  const words = new Set(["trace", "policy", ...tier_names]);
  const names = distinct(["trace", "policy", ...rows.flatMap((row) => Object.keys(row))])
    .filter((name) => rows.some((row) => row[name] !== undefined && row[name] !== null && row[name] !== "" && typeof row[name] !== "object"));
  const columns = names.map((name) => ({ name, label: label_of(name), numeric: !words.has(name) && rows.every((row) => typeof row[name] !== "string"),
    text: (value) => figure_text([name], value) }));
  const shown = rows.map((row) => ({ ...row }));
  if (rows.some((row) => row.optimum > 0 && is_number(row.hit_ratio_blocks))) {
    columns.push({ name: "of_optimum", label: "of optimum", numeric: true, text: (value) => percent(value) });
    for (const row of shown) row.of_optimum = row.optimum > 0 && is_number(row.hit_ratio_blocks) ? row.hit_ratio_blocks / row.optimum : null;
  }
  if (columns.length === 0) return null;
  return section("table", "All runs", table_of({ id: "runs", caption: "Every trace, policy and size.", columns, rows: shown, sortable: true }));
}
