#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints each benchmark of a Google Benchmark JSON file beside its bar.

    scripts/bench-bars.py build/release/bench.json

A bar is an upper bound on a counter. Figures move with the machine's load, so a missed bar is
shown, not an error; a bar whose benchmark is missing is.
"""
import json
import sys

BARS = [  # benchmark, counter, at most
    ("Match/tokens:8192/page:64", "limit_ratio", 1.2),
    ("MatchWindow/tokens:8192/page:64", "limit_ratio", 2.0),
    ("MatchCold/tokens:8192/page:64", "limit_ratio", 1.2),
    ("MatchShort/tokens:640/leaves:100000", "limit_ratio", 2.5),
    ("Insert/tokens:8192/page:64", "limit_ratio", 1.5),
    ("EvictOne/leaves:1000", "mean_ns", 500),
    ("EvictOne/leaves:100000", "mean_ns", 500),
    ("EvictOne/leaves:1000000", "mean_ns", 500),
    ("EvictOne/leaves:1000000", "limit_ratio", 5),
    ("EvictWindow/leaves:1000", "mean_ns", None),
    ("EvictWindow/leaves:100000", "mean_ns", None),
    ("EvictWindow/leaves:1000000", "mean_ns", None),
    ("EvictWindow/leaves:1000000", "limit_ratio", 10),
    ("WindowRelease/requests:256", "limit_ratio", None),
    ("Metadata/page:64", "bytes_per_token", 6),
    ("Metadata/page:1", "bytes_per_token", 16),
    ("AllocExtend", "limit_ratio", None),
    ("AllocDecode", "limit_ratio", None),
    ("FreeTokens", "limit_ratio", None),
]


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        found = {b["name"]: b for b in json.load(file)["benchmarks"]}
    missing = 0
    print(f"\n{'benchmark':<38}{'counter':<18}{'measured':>10}{'bar':>8}")
    for name, counter, bar in BARS:
        value = found.get(name, {}).get(counter)
        if value is None:
            missing += 1
            print(f"{name:<38}{counter:<18}{'missing':>10}")
            continue
        verdict = "" if bar is None else ("  ok" if value <= bar else "  MISSED")
        print(f"{name:<38}{counter:<18}{value:>10.2f}{bar if bar else '-':>8}{verdict}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
