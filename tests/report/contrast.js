// SPDX-License-Identifier: Apache-2.0
// Run in the page by look_test.py: what has too little contrast to what is behind it, from the styles
// that the browser has computed. Text needs 4.5, lines and marks that mean something 3 (WCAG AA).
const parse = (text) => {
  const [r, g, b, alpha = 1] = text.match(/[0-9.]+/g).map(Number);
  return { rgb: [r, g, b], alpha };
};
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ratio = (a, b) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = parse(getComputedStyle(e).backgroundColor);
    if (colour.alpha === 1) return colour.rgb;
  }
  return [255, 255, 255];
};
const seen = (element) => {
  const box = element.getBoundingClientRect();
  if (box.width === 0 && box.height === 0) return false;
  if (element.closest("title, desc, script, style, noscript, pattern")) return false;
  for (let e = element; e; e = e.parentElement) {
    if (getComputedStyle(e).opacity === "0") return false;
  }
  return true;
};

const found = [];
let checked = 0;
for (const e of document.body.querySelectorAll("*")) {
  if (!seen(e)) continue;
  const style = getComputedStyle(e), drawn = e instanceof SVGElement;
  const wanted = [];
  const has_text = [...e.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim() !== "");
  if (has_text) wanted.push([drawn ? style.fill : style.color, 4.5]);
  if (e.matches(".line, .best, .mark path, .level path, .axis, .cursor-line")) wanted.push([style.stroke, 3]);
  if (e.matches(".bar, .point")) wanted.push([style.fill, 3]);
  if (e.matches(":focus-visible")) wanted.push([style.outlineColor, 3]);
  for (const [colour, least] of wanted) {
    ++checked;
    const got = ratio(parse(colour).rgb, behind(drawn ? e.closest("svg").parentElement : e));
    if (got < least) found.push(`${got.toFixed(2)} ${colour} ${e.outerHTML.slice(0, 80)}`);
  }
}
return { found, checked, paper: behind(document.body) };
