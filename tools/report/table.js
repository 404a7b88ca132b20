// SPDX-License-Identifier: Apache-2.0
// Tables. Each cell says its value, unformatted, in data-value. A sortable table has a button in each
// head: Enter, Space or a click sorts by that column, again turns the order round. Wide tables
// scroll in a box of their own that the keyboard can reach, never the page.

/**
 * columns: [{name, label, text(value), numeric}]; rows: objects by column name.
 * path: (row, column) => data-path, optional. The first column heads its rows.
 */
function table_of({ id, caption, columns, rows, sortable = false, path = null }) {
  const body = el("tbody", null, rows.map((row) => table_row(columns, row, path)));
  const heads = columns.map((column) => el(column.numeric ? "th.number" : "th",
    { scope: "col", "data-name": column.name },
    sortable ? el("button.sort", { type: "button" }, column.label) : column.label));
  const table = el("table", { id },
    el("caption", null, caption, sortable ? el("span.hint", null, " Heads of columns sort.") : null),
    el("thead", null, el("tr", null, heads)), body);
  if (sortable) make_sortable(columns, heads, body);
  return el("div.table-scroll", { role: "region", tabindex: "0", "aria-label": caption }, table);
}

function table_row(columns, row, path) {
  return el("tr", null, columns.map((column, at) => {
    const value = row[column.name];
    const known = value !== null && value !== undefined;
    const attributes = {
      "data-name": column.name,
      "data-value": known ? value : null,
      "data-path": path && at > 0 ? path(row, column) : null,
      scope: at === 0 ? "row" : null,
    };
    return el((at === 0 ? "th" : "td") + (column.numeric ? ".number" : ""), attributes,
      known ? (column.text ?? String)(value) : none);
  }));
}

function make_sortable(columns, heads, body) {
  heads.forEach((head, at) => {
    head.setAttribute("aria-sort", "none");
    head.firstChild.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sign = down ? -1 : 1;
      const rows = [...body.rows];
      rows.sort((a, b) => sign * compare_cells(a.cells[at], b.cells[at], columns[at].numeric));
      body.append(...rows);
    });
  });
}

/** Cells without a value come last in ascending order. Digits in text count as numbers: 5% before 10%. */
function compare_cells(a, b, numeric) {
  const [x, y] = [a.getAttribute("data-value"), b.getAttribute("data-value")];
  if (x === null || y === null) return (x === null) - (y === null);
  return numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true });
}

/** A table that stays folded until asked for. */
function folded(summary, table) {
  return el("details.data", null, el("summary", null, summary), table);
}
