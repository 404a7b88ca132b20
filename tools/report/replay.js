// SPDX-License-Identifier: Apache-2.0
// The page of `pando replay`: what was found where, how that went over the trace, what left the
// tiers, why the rest was missed, how long calls took.

const tier_names = ["device", "host", "store"];

function replay_sections(results) {
  return [
    replay_summary(results),
    replay_over_time(results),
    replay_traffic(results),
    replay_latency(results),
    figures_section(results),
  ];
}

function tier_of(results, name) {
  return record_of(record_of(results.tiers)[name]);
}

/** A tier without room that never held anything is not there. */
function has_tier(results, name) {
  const tier = tier_of(results, name);
  return tier.capacity_tokens > 0 || tier.peak_tokens > 0 || tier.hit_tokens > 0 ||
    list_of(results.series).some((entry) => entry[name + "_tokens"] > 0 || entry["hit_ratio_" + name] > 0);
}

/** Of the numbers among them; null where there is none. */
function sum_of(values) {
  const numbers = values.filter(is_number);
  return numbers.length > 0 ? numbers.reduce((a, b) => a + b, 0) : null;
}

function replay_summary(results) {
  const tiers = tier_names.filter((name) => has_tier(results, name));
  const refused = results.refused_requests > 0 ? `${grouped(results.refused_requests)} refused` : "none refused";
  const evicted = sum_of(tier_names.map((name) => tier_of(results, name).evicted_tokens));
  const moved = sum_of(Object.values(record_of(results.bytes_moved)));
  const first_token = record_of(record_of(results.latency_s).first_token);
  const shown = tiles([
    tile("hit_ratio_tokens", "Hit ratio", results.hit_ratio_tokens, percent, "of prompt tokens"),
    tile("hit_ratio_blocks", "Hit ratio", results.hit_ratio_blocks, percent, "of blocks"),
    ...tiers.map((name) => tile("hit_ratio_" + name, "from " + name,
      tier_of(results, name).hit_ratio_tokens, percent, "of prompt tokens")),
    tile("prefill_tokens_saved", "Prefill saved", results.prefill_tokens_saved, compact, "tokens"),
    tile("requests", "Requests", results.requests, grouped, refused),
    tile("unique_blocks", "Unique blocks", results.unique_blocks, compact,
      is_number(results.blocks) ? `of ${compact(results.blocks)}` : null),
    tile("evicted_tokens", "Evicted", evicted, compact, "tokens, all tiers"),
    tile("bytes_moved", "Moved", moved, size_bytes, "between tiers"),
    tile("first_token_p50", "First token, p50", first_token.p50, duration_s,
      is_number(first_token.p99) ? `p99 ${duration_s(first_token.p99)}` : null),
    tile("wall_seconds", "Wall time", results.wall_seconds, duration_s, "of the replay"),
  ]);
  return shown ? section("summary", "Summary", shown) : null;
}

/** Where an entry of the series stands, and the axis: time of the trace where all have it, else requests. */
function replay_axis(series) {
  const last = series[series.length - 1];
  const timed = series.every((entry) => is_number(entry.end_s)) && last.end_s > 0;
  if (!timed) {
    return {
      x_of: (entry, at) => (is_number(entry.end_request) ? entry.end_request : at),
      axis: { label: "requests", kind: "linear", tick: tick_number, text: (value) => `request ${grouped(value)}:` },
    };
  }
  const [unit, size] = last.end_s > 7200 ? ["h", 3600] : last.end_s > 300 ? ["min", 60] : ["s", 1];
  const request = (point) => (is_number(point.request) ? `, request ${grouped(point.request)}` : "");
  return {
    x_of: (entry) => entry.end_s,
    axis: {
      label: `time in the trace, ${unit}`, kind: "linear", tick: tick_number,
      of: (point) => point.x / size,
      text: (value, point) => `${three_digits(value)}${narrow_space}${unit}${request(point)}:`,
    },
  };
}

function replay_over_time(results) {
  const series = list_of(results.series);
  if (series.length === 0) return null;
  const { x_of, axis } = replay_axis(series);
  const points = (value_of) => series.map((entry, at) => {
    const y = value_of(entry);
    return { x: x_of(entry, at), y: is_number(y) ? y : null, request: entry.end_request };
  });
  const with_series = (name_of) => tier_names.filter((name) =>
    has_tier(results, name) && series.some((entry) => is_number(entry[name_of(name)])));
  const shared = { axis, points, series };
  const charts = [
    hit_ratio_chart(with_series((name) => "hit_ratio_" + name), shared),
    eviction_chart(with_series((name) => `evicted_${name}_tokens`), shared),
    ...with_series((name) => name + "_tokens").map((name) => occupancy_chart(name, results, shared)),
  ].filter(Boolean);
  return charts.length > 0 ? section("over-time", "Over time", el("div.charts", null, charts)) : null;
}

function series_table(id, caption, series, columns) {
  const all = [
    { name: "end_request", label: "up to request", numeric: true, text: grouped },
    { name: "end_s", label: "time, s", numeric: true, text: (value) => grouped(value, 1) },
    { name: "requests", label: "requests", numeric: true, text: grouped },
    ...columns.map((column) => ({ ...column, numeric: true })),
  ];
  const known = all.filter((column) => series.some((entry) => is_number(entry[column.name])));
  return table_of({ id, caption, columns: known, rows: series });
}

function hit_ratio_chart(tiers, { axis, points, series }) {
  if (tiers.length === 0) return null;
  const title = "Hit ratio by tier";
  return line_chart({
    id: "hit-ratio", title, wide: true, stacked: true, x: axis,
    note: "In each window of requests; tiers add up to the share that was found.",
    y: { label: "hit ratio, %", most: 1, tick: tick_percent, text: (value) => percent(value) },
    lanes: tiers.map((name) => ({
      name, style: tier_names.indexOf(name), area: true,
      points: points((entry) => entry["hit_ratio_" + name]),
    })),
    table: series_table("hit-ratio-data", title, series, tiers.map((name) =>
      ({ name: "hit_ratio_" + name, label: name, text: (value) => percent(value, 2) }))),
  });
}

function eviction_chart(tiers, { axis, points, series }) {
  if (tiers.length === 0) return null;
  const title = "Evictions";
  const per_request = series.every((entry) => entry.requests > 0);
  const unit = per_request ? "tokens per request" : "tokens per window";
  return line_chart({
    id: "evictions", title, with_legend: true, x: axis,
    note: "What left each tier, in each window of requests.",
    y: { label: unit, tick: tick_number, text: (value) => `${three_digits(value)}${narrow_space}${unit}` },
    lanes: tiers.map((name) => ({
      name, style: tier_names.indexOf(name),
      points: points((entry) => {
        const tokens = entry[`evicted_${name}_tokens`];
        return is_number(tokens) ? tokens / (per_request ? entry.requests : 1) : null;
      }),
    })),
    table: series_table("evictions-data", title + ", tokens in each window", series, tiers.map((name) =>
      ({ name: `evicted_${name}_tokens`, label: name, text: grouped }))),
  });
}

function occupancy_chart(name, results, { axis, points, series }) {
  const capacity = tier_of(results, name).capacity_tokens ?? record_of(results.settings)[name + "_tokens"];
  const bounded = is_number(capacity) && capacity > 0;
  const share = (value) => (bounded ? ` (${percent(value / capacity, 0)})` : "");
  const title = `Occupancy, ${name}`;
  return line_chart({
    id: "occupancy-" + name, title, x: axis,
    note: bounded ? `Tokens held, against a capacity of ${grouped(capacity)}.` : "Tokens held; no bound is known.",
    y: { label: "tokens", tick: tick_number, text: (value) => count_of(value, "tokens") + share(value) },
    levels: bounded ? [{ y: capacity, text: `capacity ${tick_number(capacity)}` }] : [],
    lanes: [{ name, style: tier_names.indexOf(name), points: points((entry) => entry[name + "_tokens"]) }],
    table: series_table(`occupancy-${name}-data`, title, series,
      [{ name: name + "_tokens", label: "tokens", text: grouped }]),
  });
}

function replay_traffic(results) {
  const misses = record_of(results.misses);
  const missed = sum_of(Object.values(misses));
  const charts = [
    record_chart(misses, {
      id: "misses", title: "Why blocks were missed", label: "blocks", style: 1,
      note: `${grouped(missed ?? 0)} blocks were not found.`,
      text: (value) => `${compact(value)} (${percent(value / missed)})`,
    }),
    record_chart(record_of(results.bytes_moved),
      { id: "moved", title: "Bytes moved between tiers", label: "bytes", style: 2, text: size_bytes }),
  ].filter(Boolean);
  return charts.length > 0 ? section("misses-and-moves", "Misses and moves", el("div.charts", null, charts)) : null;
}

/** A record of numbers as bars. */
function record_chart(record, options) {
  const bars = Object.entries(record).filter(([, value]) => is_number(value))
    .map(([name, value]) => ({ name: label_of(name).replace(/ to /, " → "), value, style: options.style }));
  if (!bars.some((bar) => bar.value > 0)) return null;
  const columns = [
    { name: "name", label: "what" },
    { name: "value", label: options.label, numeric: true, text: grouped },
  ];
  return bar_chart({ ...options, bars,
    table: table_of({ id: options.id + "-data", caption: options.title, columns, rows: bars }) });
}

function replay_latency(results) {
  const shown = Object.entries(record_of(results.operations))
    .map(([name, value]) => ({ name, operation: record_of(value) }))
    .map((entry) => ({ ...entry, bins: bins_of(list_of(entry.operation.histogram)) }))
    .filter((entry) => entry.bins.length > 0);
  if (shown.length === 0) return null;
  const bins = shown.flatMap((entry) => entry.bins);
  const domain = [lowest_of(bins.map((bin) => bin.from)), highest_of(bins.map((bin) => bin.to))];
  return section("latency", "Time of calls",
    el("p.note", null, "All charts have the same horizontal axis."),
    el("div.charts.small", null, shown.map((entry) => latency_chart(entry, domain))));
}

function latency_chart({ name, operation, bins }, domain) {
  const marks = ["p50", "p99", "max"].filter((mark) => operation[mark + "_ns"] > 0)
    .map((mark) => ({ x: operation[mark + "_ns"], text: mark }));
  const calls = is_number(operation.count) ? operation.count : sum_of(bins.map((bin) => bin.count));
  const told = [count_of(calls, "calls"), ...marks.map((mark) => `${mark.text}\u00a0${duration_ns(mark.x)}`)];
  const id = "latency-" + id_part(name);
  return histogram_chart({
    id, title: capital(label_of(name)), bins, domain,
    note: told.join(" · "),
    summary: told.join(", ") + ".",
    marks: marks.filter((mark) => mark.x >= domain[0] && mark.x <= domain[1]),
    table: table_of({
      id: id + "-data", caption: `${label_of(name)}: calls by time`,
      columns: [{ name: "up_to_ns", label: "up to", numeric: true, text: duration_ns },
        { name: "count", label: "calls", numeric: true, text: grouped }],
      rows: list_of(operation.histogram),
    }),
  });
}
