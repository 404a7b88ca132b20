# SPDX-License-Identifier: Apache-2.0
"""What can be measured of how the page looks: contrast in both schemes and on paper, nothing clipped or
running into something else, from 360 pixels to wide screens and in print.
"""
import base64
import pathlib

import samples
from browser import PageCase

ALL = {"replay": samples.replay, "plan": samples.plan, "compare": samples.compare, "bars": samples.compare_bars}
PAPER = 703  # the width of A4 within the page's margins, in CSS pixels

HERE = pathlib.Path(__file__).parent
CONTRAST = (HERE / "contrast.js").read_text()
CLIPPED = (HERE / "clipped.js").read_text()


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
              [...document.querySelectorAll(".skip, .contents, .readout, .choice, #save, summary")]
                .filter(e => e.checkVisibility()).map(e => e.outerHTML),
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
        found = self.js("""return [...document.querySelectorAll("#curves .lane")].map(lane => [
          lane.querySelector(".line").getAttribute("stroke-dasharray"),
          lane.querySelector(".point")?.getAttribute("d")].join())""")
        self.assertEqual(len(found), 6)
        self.assertEqual(len(set(found)), 6)

    def test_reduced_motion_has_none(self):
        self.open(samples.plan())
        for preference, expected in (("no-preference", "0.15s"), ("reduce", "0s")):
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
                "features": [{"name": "prefers-reduced-motion", "value": preference}]})
            found = self.js("return getComputedStyle(document.querySelector('.lane')).transitionDuration")
            self.assertEqual(found, expected)
