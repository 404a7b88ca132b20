// SPDX-License-Identifier: Apache-2.0
// The page of `pando replay`: what was found where, how that went over the trace, what left the
// tiers, why the rest was missed, how long calls took.

const tier_names = ["device", "host", "store"];

function replay_sections(results) {
  return [replay_summary(results), replay_over_time(results), replay_traffic(results), replay_latency(results),
    figures_section(results)];
}

function replay_summary(results) {
  const tiers = record_of(results.tiers);
  const latency = record_of(record_of(results.latency_s).first_token);
  const moved = Object.values(record_of(results.bytes_moved)).filter(is_number);
  const evicted = tier_names.map((name) => record_of(tiers[name]).evicted_tokens).filter(is_number);
  const sum = (values) => (values.length > 0 ? values.reduce((a, b) => a + b, 0) : null);
  const shown = tiles([
    tile("hit_ratio_tokens", "Hit ratio", results.hit_ratio_tokens, percent, "of prompt tokens"),
    tile("hit_ratio_blocks", "Hit ratio", results.hit_ratio_blocks, percent, "of blocks"),
    ...tier_names.map((name) => tile("hit_ratio_" + name, "from " + name,
      used_tier(results, name) ? record_of(tiers[name]).hit_ratio_tokens : null, percent, "of prompt tokens")),
    tile("prefill_tokens_saved", "Prefill saved", results.prefill_tokens_saved, compact, "tokens"),
    tile("requests", "Requests", results.requests, grouped,
      results.refused_requests > 0 ? `${grouped(results.refused_requests)} refused` : "none refused"),
    tile("unique_blocks", "Unique blocks", results.unique_blocks, compact,
      is_number(results.blocks) ? `of ${compact(results.blocks)}` : null),
    tile("evicted_tokens", "Evicted", sum(evicted), compact, "tokens, all tiers"),
    tile("bytes_moved", "Moved", sum(moved), size_bytes, "between tiers"),
    tile("first_token_p50", "First token, p50", latency.p50, duration_s,
      is_number(latency.p99) ? `p99 ${duration_s(latency.p99)}` : null),
    tile("wall_seconds", "Wall time", results.wall_seconds, duration_s, "of the replay"),
  ]);
  return shown ? section("summary", "Summary", shown) : null;
}

/** A tier without room that never held anything is not there. */
function used_tier(results, name) {
  const tier = record_of(record_of(results.tiers)[name]);
  return tier.capacity_tokens > 0 || tier.peak_tokens > 0 || tier.hit_tokens > 0 ||
    list_of(results.series).some((entry) => entry[name + "_tokens"] > 0 || entry["hit_ratio_" + name] > 0);
}

/** Time of the trace where all entries have it, else requests. `x_of(entry)`, and the axis. */
function replay_axis(series) {
  const last = series[series.length - 1];
  const timed = series.every((entry) => is_number(entry.end_s)) && last.end_s > 0;
  if (!timed) {
    return { x_of: (entry, at) => (is_number(entry.end_request) ? entry.end_request : at),
      axis: { label: "requests", kind: "linear", tick: tick_number, text: (value) => `request ${grouped(value)}:` } };
  }
  const [unit, size] = last.end_s > 7200 ? ["h", 3600] : last.end_s > 300 ? ["min", 60] : ["s", 1];
  return { x_of: (entry) => entry.end_s,
    axis: { label: `time in the trace, ${unit}`, kind: "linear", of: (point) => point.x / size, tick: tick_number,
      text: (value, point) => `${three_digits(value)}${narrow_space}${unit}` +
        (is_number(point.request) ? `, request ${grouped(point.request)}:` : ":") } };
}

function replay_over_time(results) {
  const series = list_of(results.series);
  if (series.length === 0) return null;
  const { x_of, axis } = replay_axis(series);
  const points = (value_of) => series.map((entry, at) => ({ x: x_of(entry, at), y: value_of(entry), request: entry.end_request }))
    .map((point) => ({ ...point, y: is_number(point.y) ? point.y : null }));
  const has = (name) => series.some((entry) => is_number(entry[name]));
  const tiers = tier_names.filter((name) => used_tier(results, name));
  const charts = [
    hit_ratio_chart(tiers.filter((name) => has("hit_ratio_" + name)), axis, points, series),
    eviction_chart(tiers.filter((name) => has(`evicted_${name}_tokens`)), axis, points, series),
    ...tiers.filter((name) => has(name + "_tokens")).map((name) => occupancy_chart(name, results, axis, points, series)),
  ].filter(Boolean);
  return charts.length > 0 ? section("over-time", "Over time", el("div.charts", null, charts)) : null;
}

function series_table(id, title, series, columns) {
  const always = [
    { name: "end_request", label: "up to request", numeric: true, text: grouped },
    { name: "end_s", label: "time, s", numeric: true, text: (value) => grouped(value, 1) },
    { name: "requests", label: "requests", numeric: true, text: grouped },
  ];
  const known = [...always, ...columns].filter((column) => series.some((entry) => is_number(entry[column.name])));
  return table_of({ id, caption: title, columns: known, rows: series });
}

function hit_ratio_chart(tiers, axis, points, series) {
  if (tiers.length === 0) return null;
  const title = "Hit ratio by tier";
  return line_chart({ id: "hit-ratio", title, wide: true, stacked: true, x: axis,
    note: "In each window of requests; tiers add up to the share that was found.",
    y: { label: "hit ratio, %", most: 1, tick: tick_percent, text: percent },
    lanes: tiers.map((name) => ({ name, style: tier_names.indexOf(name), area: true, points: points((entry) => entry["hit_ratio_" + name]) })),
    table: series_table("hit-ratio-data", title, series,
      tiers.map((name) => ({ name: "hit_ratio_" + name, label: name, numeric: true, text: (value) => percent(value, 2) }))) });
}

function eviction_chart(tiers, axis, points, series) {
  if (tiers.length === 0) return null;
  const title = "Evictions";
  const per_request = series.every((entry) => entry.requests > 0);
  const unit = per_request ? "tokens per request" : "tokens per window";
  return line_chart({ id: "evictions", title, x: axis, with_legend: true, note: "What left each tier, in each window of requests.",
    y: { label: unit, tick: tick_number, text: (value) => `${three_digits(value)}${narrow_space}${unit}` },
    lanes: tiers.map((name) => ({ name, style: tier_names.indexOf(name),
      points: points((entry) => entry[`evicted_${name}_tokens`] / (per_request ? entry.requests : 1)) })),
    table: series_table("evictions-data", title + ", tokens in each window", series,
      tiers.map((name) => ({ name: `evicted_${name}_tokens`, label: name, numeric: true, text: grouped }))) });
}

function occupancy_chart(name, results, axis, points, series) {
  const capacity = record_of(record_of(results.tiers)[name]).capacity_tokens ?? record_of(results.settings)[name + "_tokens"];
  const title = `Occupancy, ${name}`;
  const bounded = is_number(capacity) && capacity > 0;
  return line_chart({ id: "occupancy-" + name, title, x: axis,
    note: bounded ? `Tokens held, against a capacity of ${grouped(capacity)}.` : "Tokens held; no bound is known.",
    y: { label: "tokens", tick: tick_number, text: (value) => count_of(value, "tokens") +
      (bounded ? ` (${percent(value / capacity, 0)})` : "") },
    levels: bounded ? [{ y: capacity, text: `capacity ${compact(capacity)}` }] : [],
    lanes: [{ name, style: tier_names.indexOf(name), points: points((entry) => entry[name + "_tokens"]) }],
    table: series_table(`occupancy-${name}-data`, title, series,
      [{ name: name + "_tokens", label: "tokens", numeric: true, text: grouped }]) });
}

/** A record of numbers as bars, with the share of each. */
function record_chart(options, record) {
  const bars = Object.entries(record).filter(([, value]) => is_number(value))
    .map(([name, value]) => ({ name: label_of(name).replace(/ to /, " → "), value, style: options.style }));
  if (!bars.some((bar) => bar.value > 0)) return null;
  return bar_chart({ ...options, bars, table: table_of({ id: options.id + "-data", caption: options.title,
    columns: [{ name: "name", label: "what" }, { name: "value", label: options.label, numeric: true, text: grouped }], rows: bars }) });
}

function replay_traffic(results) {
  const misses = record_of(results.misses);
  const missed = Object.values(misses).filter(is_number).reduce((a, b) => a + b, 0);
  const charts = [
    record_chart({ id: "misses", title: "Why blocks were missed", label: "blocks", style: 1,
      note: `${grouped(missed)} blocks were not found.`,
      text: (value) => `${compact(value)} (${percent(value / (missed || 1))})` }, misses),
    record_chart({ id: "moved", title: "Bytes moved between tiers", label: "bytes", style: 2, text: size_bytes },
      record_of(results.bytes_moved)),
  ].filter(Boolean);
  return charts.length > 0 ? section("misses-and-moves", "Misses and moves", el("div.charts", null, charts)) : null;
}

function replay_latency(results) {
  const shown = Object.entries(record_of(results.operations))
    .map(([name, operation]) => ({ name, operation: record_of(operation), bins: bins_of(list_of(record_of(operation).histogram)) }))
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
  const told = marks.map((mark) => `${mark.text}\u00a0${duration_ns(mark.x)}`);
  const calls = bins.reduce((sum, bin) => sum + bin.count, 0);
  const id = "latency-" + id_part(name);
  return histogram_chart({ id, title: capital(label_of(name)), bins, domain,
    marks: marks.filter((mark) => mark.x >= domain[0] && mark.x <= domain[1]),
    note: [`${grouped(operation.count ?? calls)} calls`, ...told].join(" · "),
    summary: `${calls} calls. ${told.join(", ")}.`,
    table: table_of({ id: id + "-data", caption: `${label_of(name)}: calls by time`,
      columns: [{ name: "up_to_ns", label: "up to", numeric: true, text: duration_ns },
        { name: "count", label: "calls", numeric: true, text: grouped }],
      rows: list_of(operation.histogram) }) });
}
