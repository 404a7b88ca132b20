// SPDX-License-Identifier: Apache-2.0
// Run in the page by look_test.py: what ends outside of the page, or of a box or picture that hides what
// does not fit, and names in a picture that lie upon each other. On a screen tables may scroll in
// their boxes; on paper nothing may.
const found = [];
const wide = document.documentElement.clientWidth, print = matchMedia("print").matches;
const report = (what, ...elements) => found.push(`${what}: ${elements.map((e) => e.outerHTML.slice(0, 80)).join(" ")}`);

for (const e of document.body.querySelectorAll("*")) {
  const box = e.getBoundingClientRect();
  if ((box.width === 0 && box.height === 0) || e.closest(".skip, pattern")) continue;
  const may_scroll = !print && e.closest(".table-scroll");
  if (!may_scroll && (box.right > wide + 1 || box.left < -1)) report("outside of the page", e);
  if (e instanceof SVGElement) {
    if (!e.matches(".plot text, .plot .bar")) continue;
    const frame = e.closest("svg").getBoundingClientRect();
    const inside = box.left >= frame.left - 1 && box.right <= frame.right + 1 &&
      box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
    if (!inside) report("outside of its picture", e);
  } else if (!may_scroll && getComputedStyle(e).overflowX !== "visible") {
    const fits = e.scrollWidth <= e.clientWidth + 1 && e.scrollHeight <= e.clientHeight + 1;
    if (!fits) report("cut off", e);
  }
}

const overlap = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
for (const picture of document.querySelectorAll(".plot > svg")) {
  const texts = [...picture.querySelectorAll(".axes text, .mark text, .level text")];
  const boxes = texts.map((e) => e.getBoundingClientRect());
  texts.forEach((e, i) => texts.forEach((f, j) => {
    if (i < j && overlap(boxes[i], boxes[j])) report("upon each other", e, f);
  }));
}
return found;
