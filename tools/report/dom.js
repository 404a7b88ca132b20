// SPDX-License-Identifier: Apache-2.0
// Elements, made in one call. Strings always become text, never markup: results may hold anything.

const svg_namespace = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined) element.append(child);
  }
  return element;
}

/** el("p.note", {id: "a"}, "text", child): an HTML element with classes, attributes and content. */
function el(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length > 0) element.className = classes.join(" ");
  return fill(element, attributes, children);
}

/** The same for SVG. */
function svg(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElementNS(svg_namespace, tag);
  if (classes.length > 0) element.setAttribute("class", classes.join(" "));
  return fill(element, attributes, children);
}

/** A name as part of an id. */
function id_part(name) {
  return String(name).replace(/[^A-Za-z0-9_-]/g, "-");
}

/** A part of the page with its heading; it enters the list of contents. */
function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": id + "-title" },
    el("h2", { id: id + "-title" }, title), children);
}

/** A row of figures that stand out: {name, label, value, text, note}. Those without a value are left out. */
function tiles(items) {
  const shown = items.filter((item) => item && item.value !== null && item.value !== undefined);
  if (shown.length === 0) return null;
  return el("dl.tiles", null, shown.map((item) =>
    el("div.tile", { "data-name": item.name, "data-value": item.value },
      el("dt", null, item.label),
      el("dd", null, item.text, item.note ? el("span.tile-note", null, item.note) : null))));
}

function tile(name, label, value, text, note) {
  return is_number(value) ? { name, label, value, text: text(value), note } : null;
}
