#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pando command from outside: exit codes, JSON, bad input, Ctrl-C.

Run as: command_test.py PATH_OF_PANDO [unittest options]
"""
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import OrderedDict
from pathlib import Path

PANDO = ""


def pando(*arguments, stdin=None):
    return subprocess.run([PANDO, *map(str, arguments)], input=stdin, capture_output=True, timeout=300)


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="pando-command-")
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def ok(self, *arguments, stdin=None):
        done = pando(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def fails(self, code, message, *arguments, stdin=None):
        done = pando(*arguments, stdin=stdin)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        self.assertIn(message, done.stderr.decode())
        self.assertEqual(done.stdout, b"")

    def chat(self, requests=400):
        self.ok("gen", "chat", "--requests", requests, "-o", self.path("chat.jsonl"))
        return self.path("chat.jsonl")


def lru_ratio(path, capacity):
    """Block LRU with tails evicted first, the dumbest way."""
    cached, hits, total = OrderedDict(), 0, 0
    with open(path) as lines:
        for line in lines:
            blocks = json.loads(line)["hash_ids"]
            total += len(blocks)
            for block in blocks:
                if block not in cached:
                    break
                hits += 1
            for block in reversed(blocks):
                cached.pop(block, None)
                cached[block] = True
            while len(cached) > capacity:
                cached.popitem(last=False)
    return hits / total


class Usage(CommandTest):
    def test_every_subcommand_has_help(self):
        for name in ["replay", "plan", "compare", "why", "gen"]:
            self.assertIn(name, self.ok("--help"))
            self.assertIn("--help", self.ok(name, "--help"))
        self.assertIn("pando ", self.ok("--version"))

    def test_bad_usage_is_exit_code_2(self):
        trace = self.chat(10)
        self.fails(2, "TRACE", "replay")
        self.fails(2, "expected tokens", "replay", trace, "--device", "lots")
        self.fails(2, "unknown eviction policy", "replay", trace, "--policy", "nonsense")
        self.fails(2, "a model that says", "replay", trace, "--device", "1GiB")
        self.fails(2, "a store needs a host tier", "replay", trace, "--store", "1Mtok")
        self.fails(2, "a window of 0 tokens", "replay", trace, "--window", "0")
        self.fails(2, "turns", "gen", "chat", "--turns", "0")
        self.fails(2, "read twice", "replay", "-", "--device", "5%", stdin=Path(trace).read_bytes())

    def test_what_cannot_be_done_is_exit_code_1(self):
        self.fails(1, "cannot open '/nowhere/t'", "replay", "/nowhere/t")
        self.fails(1, "has no requests", "replay", "/dev/null")
        self.fails(1, "cannot write", "replay", self.chat(10), "--json", "/nowhere/out.json")
        self.fails(1, "neither a file nor one of those known", "replay", self.chat(10), "--model", "x")


class Replay(CommandTest):
    def test_json_has_the_figures_and_they_are_those_of_a_naive_simulation(self):
        trace = self.chat()
        for share in [1, 5, 25]:
            result = json.loads(self.ok("replay", trace, "--device", f"{share}%", "--json", "-"))
            blocks = int(result["unique_blocks"] * share / 100 + 1e-6)
            self.assertEqual(result["requests"], 400)
            self.assertAlmostEqual(result["hit_ratio_blocks"], lru_ratio(trace, blocks), places=9)
            self.assertGreater(result["hit_ratio_tokens"], 0)

    def test_gzip_and_standard_input_are_the_same_trace(self):
        trace = self.chat()
        plain = json.loads(self.ok("replay", trace, "--device", "20ktok", "--json", "-"))
        data = Path(trace).read_bytes()
        with gzip.open(self.path("t.gz"), "wb") as packed:
            packed.write(data)
        for arguments, stdin in [((self.path("t.gz"),), None), (("-",), data), (("-",), gzip.compress(data))]:
            other = json.loads(self.ok("replay", *arguments, "--device", "20ktok", "--json", "-", stdin=stdin))
            self.assertEqual(other["hit_ratio_blocks"], plain["hit_ratio_blocks"])

    def test_bytes_are_verified_through_device_host_and_file(self):
        result = json.loads(self.ok("replay", self.chat(), "--page", 128, "--bytes", "--device", "8ktok", "--host",
                                    "20ktok", "--store", "60ktok", "--store-at", "file:" + self.path("store"),
                                    "--json", "-"))
        self.assertGreater(result["verified_tokens"], 0)
        for tier in ["device", "host", "store"]:
            self.assertGreater(result["tiers"][tier]["hit_tokens"], 0, tier)
        self.assertGreater(result["bytes_moved"]["store_to_host"], 0)

    def test_a_window_smaller_than_a_page_hits_as_one_of_a_page(self):
        def hits(window):
            result = json.loads(self.ok("replay", self.chat(), "--page", 64, "--bytes", "--device", "8ktok", "--host",
                                        "20ktok", "--window", window, "--json", "-"))
            self.assertGreater(result["verified_tokens"], 0)
            return result["hit_ratio_tokens"]
        self.assertGreater(hits(64), 0)
        for window in [1, 32]:
            self.assertEqual(hits(window), hits(64))

    def test_timed_replay_tells_how_long_requests_wait(self):
        result = json.loads(self.ok("replay", self.chat(), "--device", "100ktok", "--mode", "timed", "--json", "-"))
        self.assertLessEqual(result["latency_s"]["queue"]["p50"], result["latency_s"]["first_token"]["p50"])

    def test_table_json_and_report_agree(self):
        table = self.ok("replay", self.chat(), "--device", "20ktok", "--json", self.path("r.json"), "--report",
                        self.path("r.html"))
        result = json.loads(Path(self.path("r.json")).read_text())
        self.assertIn(f"{100 * result['hit_ratio_blocks']:.2f} %", table)
        self.assertIn('"hit_ratio_blocks"', Path(self.path("r.html")).read_text())
        self.assertEqual(sorted(os.listdir(self.directory)), ["chat.jsonl", "r.html", "r.json"])

    def test_memory_does_not_grow_with_the_trace(self):
        # A build with the address sanitizer keeps what was freed for a while.
        options = os.environ.get("ASAN_OPTIONS", "")
        os.environ["ASAN_OPTIONS"] = options + ":quarantine_size_mb=1"
        self.addCleanup(os.environ.__setitem__, "ASAN_OPTIONS", options)
        peaks = []
        for requests in [2000, 20000]:
            self.ok("gen", "batch", "--requests", requests, "--block-tokens", 256, "-o", self.path("t"))
            result = json.loads(self.ok("replay", self.path("t"), "--device", "200ktok", "--json", "-"))
            peaks.append(result["memory"]["peak_rss_bytes"])
        self.assertLess(peaks[1], 1.5 * peaks[0])


class BadLines(CommandTest):
    def damaged(self):
        lines = Path(self.chat(100)).read_text().splitlines()
        lines[41] = lines[41][:60]
        lines[70] = '{"hash_ids": [1, "two"]}'
        with open(self.path("bad"), "w") as out:
            out.write("\n".join(lines))
        return self.path("bad")

    def test_are_reported_with_file_and_line(self):
        for command in [["replay"], ["plan"], ["why", "--request", "90"]]:
            self.fails(1, f"{self.path('bad')}:42: not a JSON object", command[0], self.damaged(), *command[1:])

    def test_are_counted_when_skipped(self):
        result = json.loads(self.ok("replay", self.damaged(), "--skip-bad", "--json", "-"))
        self.assertEqual(result["requests"], 98)
        self.assertEqual(result["trace"]["skipped_lines"], 2)

    def test_a_truncated_gzip_file_is_reported_with_its_line(self):
        with open(self.path("t.gz"), "wb") as out:
            out.write(gzip.compress(Path(self.chat()).read_bytes())[:-5000])
        done = pando("replay", self.path("t.gz"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), r"t\.gz:\d+: ends in the middle of gzip data")


class PlanAndCompare(CommandTest):
    def test_plan_agrees_with_replay_and_the_optimum_is_above(self):
        trace = self.chat()
        plan = json.loads(self.ok("plan", trace, "--policy", "fifo", "--at", "1000blocks", "--json", "-"))
        curves = {curve["policy"]: {p["capacity_blocks"]: p["hit_ratio_blocks"] for p in curve["points"]}
                  for curve in plan["curves"]}
        for policy in ["lru", "fifo"]:
            replayed = json.loads(self.ok("replay", trace, "--device", "1000blocks", "--policy", policy, "--json", "-"))
            self.assertAlmostEqual(curves[policy][1000], replayed["hit_ratio_blocks"], places=9)
            self.assertGreaterEqual(curves["optimum"][1000], curves[policy][1000])
        self.assertIn("Twice as much", self.ok("plan", trace, "--host", "50ktok", "--model", "llama-3.1-8b"))

    def test_compare_is_a_table_of_replays(self):
        trace = self.chat()
        self.ok("compare", trace, "--policy", "lru,fifo", "--device", "2%,10%", "--json", self.path("c.json"), "--report",
                self.path("c.html"))
        rows = json.loads(Path(self.path("c.json")).read_text())["rows"]
        self.assertEqual(len(rows), 4)
        for row in rows:
            replayed = json.loads(self.ok("replay", trace, "--policy", row["policy"], "--device", row["device"], "--json", "-"))
            self.assertEqual(row["hit_ratio_blocks"], replayed["hit_ratio_blocks"])
            self.assertGreaterEqual(row["optimum"], row["hit_ratio_blocks"])

    def test_compare_passes_on_what_a_replay_says(self):
        self.fails(2, "unknown eviction policy", "compare", self.chat(10), "--policy", "lru,nonsense")
        self.fails(1, "cannot open", "compare", "/nowhere/t")

    def test_why_tells_every_block(self):
        story = json.loads(self.ok("why", self.chat(), "--request", 300, "--device", "10ktok", "--json", "-"))
        parts = story["parts"]
        self.assertEqual(parts[0]["from_block"], 0)
        self.assertEqual(parts[-1]["to_block"], story["blocks"])
        for before, after in zip(parts, parts[1:]):
            self.assertEqual(before["to_block"], after["from_block"])
        self.fails(1, "the trace has 400", "why", self.path("chat.jsonl"), "--request", 500)


class CtrlC(CommandTest):
    def interrupt(self, *arguments):
        """Starts it, waits until an output has begun, and interrupts it."""
        running = subprocess.Popen([PANDO, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not [n for n in os.listdir(self.directory) if n.endswith(".unfinished")]:
            self.assertIsNone(running.poll(), "it was done before it could be interrupted")
            time.sleep(0.001)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
        self.assertEqual(running.returncode, -signal.SIGINT)

    def test_gen_leaves_nothing_behind(self):
        self.interrupt("gen", "agent", "--requests", "10M", "-o", self.path("huge.jsonl"))
        self.assertEqual(os.listdir(self.directory), [])

    def test_replay_leaves_nothing_behind_and_old_results_alone(self):
        self.ok("gen", "agent", "--requests", 3000, "-o", self.path("t"))
        with open(self.path("r.json"), "w") as out:
            out.write("old")
        self.interrupt("replay", self.path("t"), "--check-every", "1", "--json", self.path("r.json"), "--report",
                       self.path("r.html"))
        self.assertEqual(sorted(os.listdir(self.directory)), ["r.json", "t"])
        self.assertEqual(Path(self.path("r.json")).read_text(), "old")

    def test_compare_takes_its_children_with_it(self):
        self.ok("gen", "agent", "--requests", 3000, "-o", self.path("t"))
        self.interrupt("compare", self.path("t"), "--policy", "lru,lfu,fifo,slru", "--page", "1", "--json", self.path("c.json"))
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.children_of_pando():
            time.sleep(0.01)
        self.assertEqual(self.children_of_pando(), [])
        self.assertEqual(os.listdir(self.directory), ["t"])

    def children_of_pando(self):
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if self.path("t").encode() in words:
                found.append(pid)
        return found


if __name__ == "__main__":
    PANDO = sys.argv.pop(1)
    unittest.main()
