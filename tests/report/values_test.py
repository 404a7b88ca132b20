# SPDX-License-Identifier: Apache-2.0
"""What the page shows is what the results say: tiles, tables, points and where these are drawn."""
import math

import samples
from browser import PageCase


def leaves(value, path=()):
    """(path, value) of every plain value; a list of plain values is one."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    elif not isinstance(value, list) or not any(isinstance(item, (dict, list)) for item in value):
        yield path, value


def shown(value):
    """As data-value says it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, list) else value


class Values(PageCase):
    def same(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for one, other in zip(found, expected):
            self.assertAlmostEqual(one, other, delta=1e-9 * max(1, abs(other)))

    def straight(self, pixels, values):
        """Pixels follow values in a straight line: the axis tells the truth."""
        low, high = values.index(min(values)), values.index(max(values))
        slope = (pixels[high] - pixels[low]) / (values[high] - values[low])
        self.assertNotEqual(slope, 0)
        for pixel, value in zip(pixels, values):
            self.assertAlmostEqual(pixel, pixels[low] + slope * (value - values[low]), delta=0.6)

    def places(self, selector):
        """Centres of such elements on the screen."""
        return self.js("""return [...document.querySelectorAll(arguments[0])].map(e => {
          const box = e.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })""", selector)

    def test_replay_every_figure_is_in_a_table(self):
        results = samples.replay()
        self.open(results)
        cells = {cell["path"]: cell["value"] for cell in self.js(
            "return [...document.querySelectorAll('#figures [data-path]')].map(e => ({...e.dataset}))"
            ".map(d => ({path: d.path, value: d.value ?? null}))")}
        elsewhere = ("command", "version", "series")
        for path, value in leaves({name: results[name] for name in results if name not in elsewhere}):
            self.assertIn(".".join(path), cells)
            found, expected = cells.pop(".".join(path)), shown(value)
            if isinstance(expected, (int, float)):
                self.assertEqual(float(found), expected, path)
            else:
                self.assertEqual(found, expected, path)
        self.assertEqual(cells, {})

    def test_replay_tiles(self):
        results = samples.replay()
        self.open(results)
        found = dict(zip(self.texts(".tile", "data-name"), self.values(".tile")))
        for name in ("hit_ratio_tokens", "hit_ratio_blocks", "prefill_tokens_saved", "requests", "unique_blocks",
                     "wall_seconds"):
            self.assertEqual(found[name], results[name])
        for tier in ("device", "host", "store"):
            self.assertEqual(found["hit_ratio_" + tier], results["tiers"][tier]["hit_ratio_tokens"])
        self.assertEqual(found["evicted_tokens"], 111_000_000)
        self.assertEqual(found["bytes_moved"], sum(results["bytes_moved"].values()))
        self.assertIn("33.9\u202f%", self.one(".tile[data-name=hit_ratio_tokens]").text)
        self.assertIn("12\u202f031", self.one(".tile[data-name=requests]").text)

    def test_replay_series(self):
        results = samples.replay()
        self.open(results)
        for table, name in (("hit-ratio", "hit_ratio_device"), ("hit-ratio", "hit_ratio_store"), ("hit-ratio", "end_s"),
                            ("evictions", "evicted_host_tokens"), ("occupancy-device", "device_tokens"),
                            ("occupancy-host", "host_tokens")):
            cells = self.values(f"#{table}-data tbody [data-name={name}]")
            self.same(cells, [entry[name] for entry in results["series"]])
        by_minute = {round(entry["end_s"] / 60, 6): entry for entry in results["series"]}
        tiers = ("device", "host", "store")
        for tier in tiers:
            points = f"#hit-ratio [data-lane={tier}] .point"
            entries = [by_minute[round(x, 6)] for x in self.values(points, "data-x")]
            self.assertGreater(len(entries), 40)
            self.same(self.values(points), [entry["hit_ratio_" + tier] for entry in entries])
            # Areas stand on one another: a point is drawn at the sum of its own and those below.
            below = tiers[:tiers.index(tier) + 1]
            sums = [sum(entry["hit_ratio_" + name] for name in below) for entry in entries]
            self.straight([y for _, y in self.places(points)], sums)
        points = "#occupancy-host .point"
        self.straight([y for _, y in self.places(points)], self.values(points))
        self.straight([x for x, _ in self.places(points)], self.values(points, "data-x"))
        self.same(self.values("#occupancy-host .level"), [12_000_000])

    def test_replay_without_times_counts_requests(self):
        results = samples.replay()
        for entry in results["series"]:
            del entry["end_s"]
        self.open(results)
        self.assertIn("requests", self.texts_of("#occupancy-host .label"))
        self.assertIn(12_000, self.values("#occupancy-host .point", "data-x"))

    def texts_of(self, selector):
        return self.js("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)

    def test_replay_latency_and_misses(self):
        results = samples.replay()
        self.open(results)
        for name, operation in results["operations"].items():
            self.assertEqual(sum(self.values(f"#latency-{name} .bar")), operation["count"])
            marks = dict(zip(self.texts_of(f"#latency-{name} .mark text"), self.values(f"#latency-{name} .mark")))
            self.assertEqual(marks, {"p50": operation["p50_ns"], "p99": operation["p99_ns"], "max": operation["max_ns"]})
            self.same(self.values(f"#latency-{name}-data td"), [bucket["count"] for bucket in operation["histogram"]])
        self.assertEqual(self.values("#misses .bar"), list(results["misses"].values()))
        self.assertEqual(self.values("#moved .bar"), list(results["bytes_moved"].values()))
        widths = self.js("return [...document.querySelectorAll('#moved .bar')].map(e => e.getBoundingClientRect().width)")
        self.straight([0, *widths], [0, *results["bytes_moved"].values()])

    def test_plan_curves(self):
        results = samples.plan()
        self.open(results)
        for at, curve in enumerate(results["curves"]):
            cells = self.values(f"#curves-data [data-name=curve-{at}][data-value]")
            self.same(cells, [point["hit_ratio_blocks"] for point in curve["points"]])
        lru = results["curves"][0]["points"]
        sizes = self.values("#curves-data tbody [data-name=capacity_bytes]")
        self.same(sizes, [point["capacity_bytes"] for point in lru])
        points = "#curves [data-lane=lru] .point"
        self.same(self.values(points), [point["hit_ratio_blocks"] for point in lru])
        capacities = self.values(points, "data-x")
        self.same(capacities, [point["capacity_bytes"] / 2**30 for point in lru])
        self.straight([x for x, _ in self.places(points)], [math.log(capacity) for capacity in capacities])
        self.same(self.values("#curves .mark"), [results["recommendation"]["knee_bytes"] / 2**30])
        self.same(self.values("#curves .level"), [results["hit_ratio_blocks_infinite"]])
        advice = self.one("#recommendation").text
        for sentence in results["recommendation"]["text"]:
            self.assertIn(sentence, advice)
        self.assertIn("furthest next use", self.one("#methods").text)
        self.assertEqual(self.values(".tile[data-name=sample_rate]"), [0.1])

    def test_plan_without_bytes_shows_tokens(self):
        results = samples.plan()
        for curve in results["curves"]:
            for point in curve["points"]:
                del point["capacity_bytes"]
        self.open(results)
        self.assertIn("capacity, tokens, logarithmic", self.texts_of("#curves .label"))
        self.assertEqual(len(self.all("#unit input")), 2)
        self.same(self.values("#curves .mark"), [results["recommendation"]["knee_tokens"]])

    def test_compare_rows_and_lines(self):
        results = samples.compare()
        self.open(results)
        rows = results["rows"]
        for name in ("hit_ratio_blocks", "hit_ratio_tokens", "evicted_tokens", "wall_seconds", "optimum"):
            self.same(self.values(f"#runs tbody [data-name={name}]"), [row[name] for row in rows])
        self.assertEqual(self.texts("#runs tbody [data-name=policy]", "data-value"), [row["policy"] for row in rows])
        shares = self.values("#runs tbody [data-name=of_optimum]")
        self.same(shares, [row["hit_ratio_blocks"] / row["optimum"] for row in rows])
        self.assertEqual(self.all("#runs [data-name=host]"), [])  # no row has one
        own = [row for row in rows if row["trace"] == "toolagent.jsonl"]
        self.same(self.values("#trace-1-data [data-name=ratio][data-value]"), [row["hit_ratio_blocks"] for row in own])
        self.same(self.values("#trace-1 [data-lane=slru] .point"),
                  [row["hit_ratio_blocks"] for row in own if row["policy"] == "slru"])

    def test_compare_few_sizes_are_bars(self):
        results = samples.compare_bars()
        self.open(results)
        own = [row for row in results["rows"] if row["trace"] == "conversation.jsonl"]
        self.same(self.values("#trace-0 .bar"), [row["hit_ratio_blocks"] for row in own])
        self.same(self.values("#trace-0 .best"), [row["optimum"] for row in own])
        self.assertEqual(self.texts("#trace-0 .bar", "data-group"), ["capacity " + row["device"] for row in own])
