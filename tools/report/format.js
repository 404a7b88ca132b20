// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them: groups of three set apart by a narrow space, three digits where more
// would say nothing, a unit behind each. Which unit a figure has is told by the end of its name.

const narrow_space = "\u202f";
const none = "–";

function is_number(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** An array's objects; nothing for what is no array. */
function list_of(value) {
  return Array.isArray(value) ? value.filter((item) => item !== null && typeof item === "object") : [];
}

/** The object itself; an empty one for what is none. */
function record_of(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
}

/** 1234567.8 as "1 234 568", or with the digits asked for. */
function grouped(value, digits = 0) {
  const [whole, rest] = Math.abs(value).toFixed(digits).split(".");
  const sign = value < 0 && Number(value.toFixed(digits)) !== 0 ? "−" : "";
  return sign + whole.replace(/\B(?=(\d{3})+$)/g, narrow_space) + (rest ? "." + rest : "");
}

/** Three digits that count: 1.23, 12.3, 123, 1 234; integers without a point. */
function three_digits(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 99.95) return grouped(value);
  if (size >= 9.995) return grouped(value, 1);
  if (size >= 0.995 || size === 0) return grouped(value, 2);
  return String(Number(value.toPrecision(2)));
}

function scaled(value, factor, units) {
  let at = 0;
  while (at + 1 < units.length && Math.abs(value) >= factor * 0.9995) {
    value /= factor;
    ++at;
  }
  return three_digits(value) + narrow_space + units[at];
}

/** Where there is little room: 1500000 as "1.50 M". */
function compact(value) {
  if (Math.abs(value) < 10000) return three_digits(value);
  return scaled(value, 1000, ["", "k", "M", "G", "T", "P"]);
}

/** For ticks: as short as it can be said. */
function tick_number(value) {
  if (Math.abs(value) < 1000) return String(Number(value.toPrecision(6)));
  let at = 0;
  while (at < 5 && Math.abs(value) >= 999.5) {
    value /= 1000;
    ++at;
  }
  return String(Number(value.toPrecision(4))) + narrow_space + "kMGTP"[at - 1];
}

function percent(ratio, digits = 1) {
  return grouped(100 * ratio, digits) + narrow_space + "%";
}

function tick_percent(ratio) {
  return tick_number(100 * ratio);
}

function duration_ns(ns) {
  if (Math.abs(ns) >= 120e9) return duration_s(ns / 1e9);
  return scaled(ns, 1000, ["ns", "µs", "ms", "s"]);
}

function duration_s(seconds) {
  if (Math.abs(seconds) < 120) return duration_ns(seconds * 1e9);
  if (Math.abs(seconds) < 7200) return three_digits(seconds / 60) + narrow_space + "min";
  return three_digits(seconds / 3600) + narrow_space + "h";
}

function size_bytes(bytes) {
  return scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
}

function count_of(value, unit) {
  return grouped(value) + narrow_space + unit;
}

/** What a figure measures, from its path in the results: ["tiers", "host", "peak_tokens"]. */
function kind_of(path) {
  const name = path[path.length - 1];
  const all = path.join(".");
  if (/ratio|^optimum$|^sample_(rate|error)$/.test(name)) return "ratio";
  if (/_ns$/.test(name)) return "ns";
  if (/(_s|seconds)$/.test(name) || /^latency_s\./.test(all)) return "s";
  if (/bytes/.test(name) || /^bytes_moved\./.test(all)) return "bytes";
  if (/^misses\./.test(all)) return "blocks";
  return "count";
}

/** Any value of the results as text. */
function figure_text(path, value) {
  if (value === null || value === undefined || value === "") return none;
  if (Array.isArray(value)) return value.map((item) => figure_text(path, item)).join(", ");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (!is_number(value)) return typeof value === "object" ? JSON.stringify(value) : String(value);
  switch (kind_of(path)) {
    case "ratio": return percent(value, 2);
    case "ns": return duration_ns(value);
    case "s": return duration_s(value);
    case "bytes": return size_bytes(value);
    case "blocks": return count_of(value, "blocks");
    default: return Number.isInteger(value) ? grouped(value) : three_digits(value);
  }
}

function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** "hit_ratio_tokens" as "hit ratio, tokens"; units that stand behind the value are left out. */
function label_of(name) {
  return name
    .replace(/^hit_ratio_(blocks|tokens|device|host|store)/, "hit ratio, $1")
    .replace(/_(ns|s|bytes|seconds)$/, (end, unit) => (unit === "seconds" ? " time" : ""))
    .replace(/_/g, " ");
}
