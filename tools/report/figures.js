// SPDX-License-Identifier: Apache-2.0
// All figures of the results as tables, whatever they are: what a newer version of the command adds
// shows up here without a change. A record of plain values is a list; a record of records a table
// with two heads. Each value carries its path in the results in data-path.

/** Drawn as charts, with tables of their own, or as text. */
const not_figures = new Set(["command", "version", "series", "curves", "rows", "recommendation"]);

function is_record(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** A value, or a list of such. */
function is_plain(value) {
  return !is_record(value) && list_of(value).length === 0;
}

function figures_section(results) {
  const parts = Object.entries(results).filter(([name]) => !not_figures.has(name));
  const tables = [];
  const totals = parts.filter(([, value]) => is_plain(value));
  if (totals.length > 0) tables.push(list_table("totals", "Totals", [], Object.fromEntries(totals)));
  for (const [name, value] of parts) {
    if (!is_record(value)) continue;
    const records = Object.entries(value).filter(([, inner]) => is_record(inner));
    const plain = Object.fromEntries(Object.entries(value).filter(([, inner]) => is_plain(inner)));
    if (records.length > 0) {
      tables.push(cross_table(name, label_of(name), [name], Object.fromEntries(records)));
    }
    if (Object.keys(plain).length > 0) {
      tables.push(list_table(name + "-list", label_of(name), [name], plain));
    }
  }
  if (tables.length === 0) return null;
  return section("figures", "All figures", el("div.figures", null, tables));
}

function list_table(id, caption, path, record) {
  const rows = Object.entries(record).map(([name, value]) =>
    el("tr", null, el("th", { scope: "row" }, label_of(name)), figure_cell([...path, name], value)));
  return figures_table(id, caption, null, rows);
}

/** Whichever there is less of, outer or inner names, goes across. */
function cross_table(id, caption, path, record) {
  const outer = Object.keys(record);
  const plain_keys = (inner) => Object.keys(inner).filter((key) => is_plain(inner[key]));
  const inner = [...new Set(outer.flatMap((name) => plain_keys(record[name])))];
  const outer_across = outer.length <= inner.length;
  const [across, down] = outer_across ? [outer, inner] : [inner, outer];
  const head = el("thead", null, el("tr", null, el("td", null),
    across.map((name) => el("th.number", { scope: "col" }, label_of(name)))));
  const cell = (row, column) => {
    const [first, second] = outer_across ? [column, row] : [row, column];
    return figure_cell([...path, first, second], record[first][second]);
  };
  const rows = down.map((row) => el("tr", null,
    el("th", { scope: "row" }, label_of(row)), across.map((column) => cell(row, column))));
  return figures_table(id, caption, head, rows);
}

function figure_cell(path, value) {
  const shown = Array.isArray(value) ? value.join(", ") : value;
  return el(is_number(value) ? "td.number" : "td.words",
    { "data-path": path.join("."), "data-value": shown }, figure_text(path, value));
}

function figures_table(id, caption, head, rows) {
  return el("div.table-scroll", { role: "region", tabindex: "0", "aria-label": caption },
    el("table", { id: "figures-" + id_part(id) }, el("caption", null, caption), head, el("tbody", null, rows)));
}
