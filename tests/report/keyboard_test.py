# SPDX-License-Identifier: Apache-2.0
"""The page by keyboard alone, with real key events, and by pointer; and what assistive technology is told."""
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

import samples
from browser import PageCase


class Keyboard(PageCase):
    def focus(self, selector):
        self.js("document.querySelector(arguments[0]).focus({focusVisible: true})", selector)

    def readout(self, chart):
        values = self.js("""return [...document.querySelectorAll(arguments[0] + " .value")].map(e =>
          [e.dataset.lane ?? "", Number(e.dataset.value)])""", f"#{chart}-readout")
        return dict(values)

    def test_tab_reaches_everything_from_the_skip_link_on(self):
        self.open(samples.replay())
        self.press(Keys.TAB)
        self.assertEqual(self.focused().get_attribute("class"), "skip")
        self.assertGreaterEqual(self.focused().rect["x"], 0)
        self.press(Keys.ENTER)
        self.assertEqual(self.focused().get_attribute("id"), "content")
        seen = []
        for _ in range(200):
            self.press(Keys.TAB)
            seen.append(self.js("const e = document.activeElement; return e.id || e.tagName + '.' + e.className"))
            if seen[-1] == "save":
                break
        self.assertEqual(seen[-1], "save")
        plots = self.texts(".plot", "id")
        self.assertEqual([name for name in seen if name.endswith("-plot")], plots)
        self.assertEqual(len([name for name in seen if name == "SUMMARY."]), len(plots))

    def test_focus_is_visible(self):
        self.open(samples.compare())
        for selector in (".skip", "#contents a", ".plot", "summary", ".sort", "#save"):
            self.focus(selector)
            width, style = self.js(
                "const s = getComputedStyle(document.activeElement); return [s.outlineWidth, s.outlineStyle]")
            self.assertEqual((selector, width, style), (selector, "2px", "solid"))

    def test_arrows_read_a_chart(self):
        series = samples.replay()["series"]
        self.open(samples.replay())
        for _ in range(40):
            self.press(Keys.TAB)
            if self.focused().get_attribute("id") == "hit-ratio-plot":
                break
        def expected(at):
            one = {tier: series[at]["hit_ratio_" + tier] for tier in ("device", "host", "store")}
            return {**one, "all": sum(one.values())}
        for key, at in ((Keys.RIGHT, 0), (Keys.RIGHT, 1), (Keys.RIGHT, 2), (Keys.LEFT, 1), (Keys.END, 119),
                        (Keys.RIGHT, 119), (Keys.PAGE_UP, 109), (Keys.HOME, 0), (Keys.LEFT, 0), (Keys.PAGE_DOWN, 10)):
            self.press(key)
            found = self.readout("hit-ratio")
            self.assertEqual(set(found), set(expected(at)))
            for lane, value in expected(at).items():
                self.assertAlmostEqual(found[lane], value)
            request = f"request {series[at]['end_request']:,}".replace(",", "\u202f")
            self.assertIn(request, self.one("#hit-ratio-readout").text)
        self.assertEqual(len(self.all("#hit-ratio .cursor-ring")), 3)
        self.press(Keys.DOWN)
        self.assertEqual(self.readout("hit-ratio"), {"device": series[10]["hit_ratio_device"]})
        self.press(Keys.DOWN, Keys.RIGHT)
        self.assertEqual(self.readout("hit-ratio"), {"host": series[11]["hit_ratio_host"]})
        self.assertEqual(self.texts("#hit-ratio .lane.picked", "data-lane"), ["host"])
        self.press(Keys.UP, Keys.UP)
        self.assertEqual(len(self.readout("hit-ratio")), 4)
        self.press(Keys.ESCAPE)
        self.assertEqual(self.readout("hit-ratio"), {})
        self.assertEqual(self.all("#hit-ratio .cursor-ring"), [])

    def test_arrows_read_bars_and_histograms(self):
        results = samples.replay()
        self.open(results)
        self.focus("#misses-plot")
        self.press(Keys.DOWN, Keys.DOWN)
        self.assertEqual(self.readout("misses"), {"": results["misses"]["evicted"]})
        self.assertIn("evicted", self.one("#misses-readout").text)
        self.focus("#latency-match-plot")
        self.press(Keys.END)
        self.assertEqual(list(self.readout("latency-match").values()), self.values("#latency-match .bar")[-1:])

    def test_reading_goes_on_where_it_was_after_a_new_width(self):
        self.open(samples.replay())
        self.focus("#hit-ratio-plot")
        self.press(Keys.END)
        before = self.readout("hit-ratio")
        self.resize(600)
        self.assertEqual(self.readout("hit-ratio"), before)
        self.assertEqual(len(self.all("#hit-ratio .cursor-line")), 1)

    def test_a_pointer_reads_too(self):
        self.open(samples.plan())
        plot = self.one("#curves-plot")
        ActionChains(self.driver).move_to_element(plot).perform()
        self.assertEqual(set(self.readout("curves")), {curve["policy"] for curve in samples.plan()["curves"]})
        ActionChains(self.driver).move_to_element(self.one("h1")).perform()
        self.assertEqual(self.readout("curves"), {})

    def test_units_of_capacity_change_by_keyboard(self):
        results = samples.plan()
        self.open(results)
        self.focus("#unit input:checked")
        for unit in ("tokens", "blocks"):
            self.press(Keys.RIGHT)
            self.settle()
            self.assertIn(f"capacity, {unit}, logarithmic", [text.text for text in self.all("#curves .label")])
            capacities = [point["capacity_" + unit] for point in results["curves"][0]["points"]]
            self.assertEqual(self.values("#curves [data-lane=lru] .point", "data-x"), capacities)

    def test_tables_sort_by_keyboard_and_mouse(self):
        results = samples.compare()
        self.open(results)
        column = lambda name: self.texts(f"#runs tbody [data-name={name}]", "data-value")
        head = "#runs th[data-name=hit_ratio_blocks]"
        self.focus(head + " button")
        self.press(Keys.ENTER)
        self.assertEqual(column("hit_ratio_blocks"), sorted(column("hit_ratio_blocks"), key=float))
        self.assertEqual(self.texts("#runs thead th[aria-sort=ascending]", "data-name"), ["hit_ratio_blocks"])
        self.press(Keys.SPACE)
        self.assertEqual(column("hit_ratio_blocks"), sorted(column("hit_ratio_blocks"), key=float, reverse=True))
        self.assertEqual(self.one(head).get_attribute("aria-sort"), "descending")
        self.one("#runs th[data-name=device] button").click()
        self.assertEqual(column("device"), [size for size in ("1%", "2%", "5%", "10%", "20%") for _ in range(12)])
        self.assertEqual(self.one(head).get_attribute("aria-sort"), "none")
        self.assertEqual(sorted(column("wall_seconds")), sorted(str(row["wall_seconds"]) for row in results["rows"]))

    def test_data_unfolds_by_keyboard(self):
        self.open(samples.replay())
        self.focus("#evictions summary")
        self.press(Keys.ENTER)
        self.assertTrue(self.one("#evictions-data").is_displayed())

    def test_every_chart_is_named_described_and_has_its_data(self):
        for results in (samples.replay(), samples.plan(), samples.compare(), samples.compare_bars()):
            self.open(results)
            found = self.js("""
              const named = (e) => e.getAttribute("aria-labelledby").split(" ")
                .map(id => document.getElementById(id)?.textContent ?? "").join("");
              return [...document.querySelectorAll("figure.chart")].map(figure => {
                const plot = figure.querySelector(".plot"), image = plot.querySelector("svg");
                return {
                  id: figure.id, labels: figure.querySelectorAll(".plot .label").length,
                  tabindex: plot.tabIndex, role: plot.getAttribute("role"), name: named(plot),
                  image_role: image.getAttribute("role"), image: named(image),
                  title: image.querySelector("title").textContent, desc: image.querySelector("desc").textContent,
                  live: figure.querySelector(".readout").getAttribute("aria-live"),
                  rows: figure.querySelectorAll("details tbody tr").length };
              })""")
            self.assertGreater(len(found), 0)
            for chart in found:
                roles = [chart[name] for name in ("tabindex", "role", "image_role", "live")]
                self.assertEqual(roles, [0, "application", "img", "polite"], chart["id"])
                for name in ("name", "image", "title", "desc", "rows", "labels"):
                    self.assertTrue(chart[name], (chart["id"], name))
            ids = self.js("return [...document.querySelectorAll('[id]')].map(e => e.id)")
            self.assertEqual(len(ids), len(set(ids)), "ids are unique")
