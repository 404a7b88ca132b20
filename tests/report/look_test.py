# SPDX-License-Identifier: Apache-2.0
"""What can be measured of how the page looks: contrast in both schemes and on paper, nothing clipped or
running into something else, from 360 pixels to wide screens and in print.
"""
import base64

import samples
from browser import PageCase

ALL = {"replay": samples.replay, "plan": samples.plan, "compare": samples.compare, "bars": samples.compare_bars}
PAPER = 703  # the width of A4 within the page's margins, in CSS pixels

CONTRAST = """
const parse = (text) => { const [r, g, b, a = 1] = text.match(/[0-9.]+/g).map(Number); return { rgb: [r, g, b], a }; };
const light = (rgb) => { const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; const p = parse(c); if (p.a === 1) return p.rgb; }
  return [255, 255, 255]; };
const seen = (e) => { if (e.closest("defs, title, desc, script, style, noscript, pattern")) return false;
  const box = e.getBoundingClientRect(); if (box.width === 0 || box.height === 0) return false;
  for (let a = e; a; a = a.parentElement) if (getComputedStyle(a).opacity === "0") return false;
  return getComputedStyle(e).visibility === "visible"; };
const found = [];
let checked = 0;
for (const e of document.body.querySelectorAll("*")) {
  if (!seen(e)) continue;
  const style = getComputedStyle(e), svg = e instanceof SVGElement;
  const wanted = [];
  if ([...e.childNodes].some(n => n.nodeType === 3 && n.data.trim() !== "")) wanted.push([svg ? style.fill : style.color, 4.5]);
  if (svg && e.matches(".line, .best, .mark path, .level path, .axis, .cursor-line")) wanted.push([style.stroke, 3]);
  if (svg && e.matches(".bar, .point")) wanted.push([style.fill, 3]);
  if (e.matches(":focus-visible")) wanted.push([style.outlineColor, 3]);
  for (const [colour, least] of wanted) {
    ++checked;
    const got = ratio(parse(colour).rgb, behind(svg ? e.closest("svg").parentElement : e));
    if (got < least) found.push(`${e.tagName}.${e.getAttribute("class")} ${colour}: ${got.toFixed(2)} "${e.textContent.slice(0, 20)}"`);
  }
}
return { found, checked, paper: behind(document.body) };
"""

# Everything that ends outside of the page, or of a box or picture that hides what does not fit.
CLIPPED = """
const found = [], wide = document.documentElement.clientWidth;
const name = (e) => `${e.tagName}#${e.id}.${e.getAttribute("class")} "${e.textContent.slice(0, 30)}"`;
for (const e of document.body.querySelectorAll("*")) {
  const box = e.getBoundingClientRect();
  if (box.width === 0 || box.height === 0 || e.closest(".skip, defs, pattern")) continue;
  const scrolls = e.closest(".table-scroll"), print = matchMedia("print").matches;
  if ((print || !scrolls) && (box.right > wide + 1 || box.left < -1)) found.push("outside " + name(e));
  const overflow = getComputedStyle(e).overflowX;
  if (!(e instanceof SVGElement) && overflow !== "visible" && (print || !e.matches(".table-scroll")) &&
      (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1)) found.push("cut " + name(e));
  if (e instanceof SVGElement && e.matches(".plot text, .plot .bar")) {
    const frame = e.closest("svg").getBoundingClientRect();
    if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      found.push("outside of its picture " + name(e));
  }
}
for (const picture of document.querySelectorAll(".plot > svg")) {
  const boxes = [...picture.querySelectorAll(".axes text")].map(e => [e, e.getBoundingClientRect()]);
  boxes.forEach(([e, a], at) => boxes.slice(at + 1).forEach(([f, b]) => {
    if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) found.push(`upon each other ${name(e)} ${name(f)}`);
  }));
}
return found;
"""


class Look(PageCase):
    def test_contrast_is_sufficient_in_light_dark_and_print(self):
        for name, make in ALL.items():
            self.open(make())
            self.js("for (const d of document.querySelectorAll('details')) d.open = true")
            self.js("document.querySelector('.plot').focus({focusVisible: true})")
            papers = []
            for scheme, media in (("light", ""), ("dark", ""), ("dark", "print")):
                self.emulate(scheme, media)
                self.settle()
                result = self.js(CONTRAST)
                self.assertEqual(result["found"], [], (name, scheme, media))
                self.assertGreater(result["checked"], 100)
                papers.append(sum(result["paper"]))
            self.assertGreater(papers[0], 700)
            self.assertLess(papers[1], 100)
            self.assertEqual(papers[2], 3 * 255)

    def test_no_width_scrolls_sideways_or_clips(self):
        for name, make in ALL.items():
            self.open(make())
            for width in (360, 500, 768, 1024, 1920):
                self.resize(width)
                page, window = self.js("return [document.documentElement.scrollWidth, window.innerWidth]")
                self.assertLessEqual(page, window, (name, width))
                self.assertEqual(self.js(CLIPPED), [], (name, width))

    def test_print_clips_nothing_and_shows_no_controls(self):
        for name, make in ALL.items():
            self.open(make())
            self.js("for (const d of document.querySelectorAll('details')) d.open = true")
            self.emulate("dark", "print")
            self.resize(PAPER)
            self.assertEqual(self.js(CLIPPED), [], name)
            shown, breaks = self.js("""return [
              [...document.querySelectorAll(".skip, .contents, .readout, .choice, #save, summary")].filter(e => e.checkVisibility()).map(e => e.outerHTML),
              [...document.querySelectorAll(".chart, tr")].map(e => getComputedStyle(e).breakInside)]""")
            self.assertEqual(shown, [], name)
            self.assertEqual(set(breaks), {"avoid"}, name)

    def test_printing_draws_for_paper_and_then_for_the_screen_again(self):
        self.open(samples.replay())
        self.js("""window.widths = []; window.addEventListener("beforeprint", () =>
          window.widths.push(document.querySelector("#latency-match svg").getAttribute("width")))""")
        before = self.js("return document.querySelector('#latency-match svg').outerHTML")
        pdf = base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
        self.assertTrue(pdf.startswith(b"%PDF"))
        self.settle()
        self.assertEqual(self.js("return window.widths"), ["312"])
        self.assertEqual(self.js("return document.querySelector('#latency-match svg').outerHTML"), before)

    def test_lanes_differ_by_more_than_colour(self):
        self.open(samples.plan())
        found = self.js("""return [...document.querySelectorAll("#curves .lane")].map(lane =>
          [lane.querySelector(".line").getAttribute("stroke-dasharray"), lane.querySelector(".point")?.getAttribute("d")].join())""")
        self.assertEqual(len(found), 6)
        self.assertEqual(len(set(found)), 6)

    def test_reduced_motion_has_none(self):
        self.open(samples.plan())
        for preference, expected in (("no-preference", "0.15s"), ("reduce", "0s")):
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-reduced-motion", "value": preference}]})
            self.assertEqual(self.js("return getComputedStyle(document.querySelector('.lane')).transitionDuration"), expected)
