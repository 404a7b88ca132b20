# SPDX-License-Identifier: Apache-2.0
"""Results that are hostile, incomplete or no results at all: nothing of them runs, and the page stands. That no
page asks the network for anything or has errors on its console is checked after each test, by PageCase.
"""
import json

import samples
from browser import PageCase


class Robust(PageCase):
    def notices(self):
        return [element.text for element in self.all(".notice")]

    def test_hostile_strings_are_text(self):
        results = samples.hostile()
        self.open(results, title=samples.HOSTILE + samples.HOSTILE_TAG)
        self.assertIsNone(self.js("return window.hacked ?? null"))
        self.assertEqual(self.all("img"), [])
        self.assertEqual(len(self.js("return [...document.scripts]")), 2)
        self.assertEqual(self.one("h1").text, samples.HOSTILE + samples.HOSTILE_TAG)
        self.assertEqual(self.driver.title, samples.HOSTILE + samples.HOSTILE_TAG)
        self.assertIn(samples.HOSTILE, self.one("#about").text)
        self.assertIn(samples.HOSTILE, self.texts("#figures [data-path='settings.policy']", "data-value"))
        self.assertEqual(self.js("return JSON.parse(document.getElementById('results').textContent)"), results)

    def test_the_policy_stops_what_would_get_in(self):
        self.open(samples.minimal())
        self.js("""
          const script = document.createElement("script"), image = document.createElement("img");
          script.textContent = "window.hacked = 1";
          image.setAttribute("onerror", "window.hacked = 2");
          image.src = "https://127.0.0.1:9/x.png";
          document.body.append(script, image);""")
        self.settle()
        self.assertIsNone(self.js("return window.hacked ?? null"))
        errors, requests = self.logs()
        self.assertEqual(requests, [])
        self.assertTrue(errors and all("Content Security Policy" in error for error in errors), errors)

    def test_no_results_are_said_to_be_none(self):
        for text in ("{}", "null", "[]", "3", '"text"'):
            self.open(text)
            self.assertEqual(self.notices(), ["There are no results in this page."], text)
        for text in ("", "{", '{"a": <!-- 1}'):
            self.open(text)
            self.assertEqual(len(self.notices()), 1, text)
            self.assertIn("are no JSON", self.notices()[0])

    def test_minimal_results(self):
        point = {"capacity_blocks": 1, "hit_ratio_blocks": 0.5}
        for results in (
                samples.minimal(),
                {"command": "replay"},
                {"command": "plan"},
                {"command": "compare"},
                {"command": "plan", "curves": []},
                {"command": "plan", "curves": [{"policy": "lru", "points": [point]}]},
                {"command": "compare", "rows": [{}]},
                {"command": "compare", "rows": [{"trace": "a", "policy": "lru"}]},
                {"command": "replay", "series": [{"end_request": 1}]},
                {"command": "replay", "series": [{"hit_ratio_device": 0.5}]},
                {"command": "replay", "operations": {"match": {"histogram": [{"up_to_ns": 100, "count": 3}]}}}):
            self.open(results)
            self.assertNotIn("could not be drawn", " ".join(self.notices()), results)
        self.assertEqual(self.values("#latency-match .bar"), [3])

    def test_unknown_commands_and_fields_are_shown_as_figures(self):
        self.open({"command": "later", "speed": {"fast_tokens": 12345}})
        self.assertEqual(self.values("[data-path='speed.fast_tokens']"), [12345])

    def test_any_part_may_be_missing_or_of_another_kind(self):
        kinds = (None, "text", [], {"a": {"b": {"c": 1}}}, [None, 1, {}])
        for make in (lambda: samples.replay(windows=9), samples.plan, samples.compare):
            names = [name for name in make() if name != "command"]
            changes = [{name: kind for name in names} for kind in kinds]
            changes += [{name: kinds[at % len(kinds)]} for at, name in enumerate(names)]
            for change in changes:
                self.open({**make(), **change})
                self.assertNotIn("could not be drawn", " ".join(self.notices()), change)

    def test_values_may_be_missing_inside(self):
        results = samples.replay()
        for at, entry in enumerate(results["series"]):
            entry[list(entry)[at % len(entry)]] = None
        results["tiers"]["host"] = None
        results["misses"]["evicted"] = "many"
        results["operations"]["match"]["histogram"] = [
            {"up_to_ns": 0, "count": 1}, {"up_to_ns": 5}, {}, {"up_to_ns": 9, "count": 0}]
        self.open(results)
        self.assertEqual(self.notices(), [])
        self.assertEqual(self.all("#latency-match"), [])
        self.assertNotIn("NaN", self.one("main").text)
        self.assertNotIn("NaN", self.js("return document.querySelector('main').innerHTML"))

    def test_long_series_are_drawn(self):
        results = samples.replay(windows=5000)
        self.open(results)
        self.assertEqual(len(self.all("#occupancy-device-data tbody tr")), 5000)
        self.assertLess(len(self.all("#occupancy-device .point")), 200)

    def test_the_json_can_be_had_back(self):
        results = samples.replay()
        self.open(results)
        saved = self.driver.execute_async_script("""
          const done = arguments[0], make = URL.createObjectURL;
          URL.createObjectURL = (blob) => { blob.text().then(done); return make(blob); };
          document.getElementById("save").click();""")
        self.assertEqual(json.loads(saved), results)
