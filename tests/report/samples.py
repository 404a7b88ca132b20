# SPDX-License-Identifier: Apache-2.0
"""Results as the commands give them, made up: the page is tested on these.

    samples.py NAME > results.json     (replay, plan, compare, compare_bars, minimal, hostile)
"""
import json
import math
import random
import sys

HOSTILE = "</script><script>window.hacked=1</script><!--"
HOSTILE_TAG = "<img src=x onerror=window.hacked=1>"


def histogram(middle_ns, spread, calls, rng):
    """Buckets of 1/8 octave, log-normal around middle_ns."""
    counts = {}
    for _ in range(calls):
        ns = middle_ns * math.exp(rng.gauss(0, spread))
        up_to = round(2 ** (math.ceil(math.log2(ns) * 8) / 8))
        counts[up_to] = counts.get(up_to, 0) + 1
    return [{"up_to_ns": up_to, "count": counts[up_to]} for up_to in sorted(counts)]


def operation(middle_ns, spread, calls, rng):
    buckets = histogram(middle_ns, spread, calls, rng)

    def at(share):
        seen = 0
        for bucket in buckets:
            seen += bucket["count"]
            if seen >= share * calls:
                return bucket["up_to_ns"]
        return buckets[-1]["up_to_ns"]

    return {"count": calls, "p50_ns": at(0.5), "p99_ns": at(0.99), "max_ns": at(1), "histogram": buckets}


def series(windows, rng):
    entries = []
    for i in range(windows):
        warm = 1 - math.exp(-i / 14)
        wave = 0.04 * math.sin(i / 6) + rng.uniform(-0.012, 0.012)
        entries.append({
            "end_request": 100 * (i + 1), "end_s": round(29.7 * (i + 1) + 9 * math.sin(i), 3), "requests": 100,
            "hit_ratio_device": round(max(0, 0.21 * warm + wave), 4),
            "hit_ratio_host": round(max(0, 0.1 * warm - wave / 3 - 0.02), 4),
            "hit_ratio_store": round(max(0, 0.06 * warm - 0.03), 4),
            "device_tokens": int(min(1, i / 8) * (3_000_000 - rng.randrange(40_000))),
            "host_tokens": int(min(1, i / 40) * (12_000_000 - rng.randrange(90_000))),
            "store_tokens": 950_000 * i,
            "evicted_device_tokens": 0 if i < 8 else int(610_000 + 4e6 * abs(wave) + rng.randrange(40_000)),
            "evicted_host_tokens": 0 if i < 40 else int(420_000 + 2e6 * abs(wave)),
        })
    return entries


def tier(hit_blocks, ratio, capacity, evicted):
    return {"hit_blocks": hit_blocks, "hit_tokens": 512 * hit_blocks, "hit_ratio_blocks": ratio,
            "hit_ratio_tokens": ratio - 0.004, "capacity_tokens": capacity, "peak_tokens": capacity,
            "evicted_tokens": evicted}


def replay(windows=120):
    rng = random.Random(1)
    return {
        "command": "replay", "version": "0.1.0",
        "trace": {"files": ["conversation.jsonl"], "format": "mooncake", "skipped_lines": 0, "block_tokens": 512},
        "settings": {"mode": "timed", "page": 512, "policy": "lru", "write_policy": "write_through",
                     "device_tokens": 3_000_000, "host_tokens": 12_000_000, "store_tokens": 200_000_000,
                     "store": "file:/var/cache/pando/store", "window": None, "model": "llama-3-8b",
                     "bytes": True, "namespaces": "none"},
        "requests": 12_031, "unique_blocks": 182_790, "blocks": 288_515, "input_tokens": 144_795_823,
        "output_tokens": 4_121_870, "refused_requests": 3, "hit_ratio_blocks": 0.3421, "hit_ratio_tokens": 0.3388,
        "tiers": {"device": tier(57_703, 0.2, 3_000_000, 71_000_000),
                  "host": tier(28_000, 0.0971, 12_000_000, 40_000_000),
                  "store": tier(13_000, 0.045, 200_000_000, 0)},
        "prefill_tokens_saved": 49_056_824,
        "bytes_moved": {"device_to_host": 9_800_000_000_000, "host_to_device": 5_400_000_000_000,
                        "host_to_store": 4_100_000_000_000, "store_to_host": 870_000_000_000},
        "misses": {"never_seen": 169_412, "evicted": 18_911, "other_namespace": 0, "not_covered": 1_204, "no_room": 285},
        "operations": {"match": operation(2_100, 0.6, 12_031, rng), "load_back": operation(1_900_000, 0.9, 4_100, rng),
                       "allocate": operation(800, 0.5, 12_031, rng), "insert": operation(3_900, 0.7, 12_031, rng),
                       "evict": operation(41_000, 0.8, 9_000, rng)},
        "series": series(windows, rng),
        "latency_s": {"queue": {"p50": 0.021, "p99": 4.2, "max": 17.5},
                      "first_token": {"p50": 0.81, "p99": 7.9, "max": 31.0}},
        "memory": {"peak_rss_bytes": 1_503_238_553, "index_bytes": 41_234_432}, "wall_seconds": 14.27,
    }


def curve(policy, method, top, middle):
    points = []
    for i in range(34):
        blocks = round(100 * 10 ** (i / 10))
        x = math.log10(blocks / middle)
        points.append({"capacity_blocks": blocks, "capacity_tokens": 512 * blocks,
                       "capacity_bytes": 512 * 131_072 * blocks,
                       "hit_ratio_blocks": round(min(top, top / (1 + math.exp(-2.6 * x)) * 1.01), 5)})
    return {"policy": policy, "method": method, "points": points}


def plan():
    return {
        "command": "plan", "version": "0.1.0",
        "trace": {"files": ["conversation.jsonl", "toolagent.jsonl"], "format": "mooncake",
                  "skipped_lines": 2, "block_tokens": 512},
        "requests": 12_031, "unique_blocks": 182_790, "blocks": 288_515, "hit_ratio_blocks_infinite": 0.3664,
        "sample_rate": 0.1, "sample_error": 0.0042, "model": "llama-3-8b", "bytes_per_token": 131_072,
        "curves": [curve("lru", "one pass", 0.3664, 9000), curve("lfu", "sampled replay", 0.36, 17000),
                   curve("fifo", "sampled replay", 0.362, 15000), curve("slru", "sampled replay", 0.3664, 8000),
                   curve("priority", "sampled replay", 0.355, 26000),
                   curve("optimum", "furthest next use", 0.3664, 3600)],
        "recommendation": {
            "knee_blocks": 31_623, "knee_tokens": 31_623 * 512, "knee_bytes": 31_623 * 512 * 131_072,
            "text": ["1.93 TiB (31 623 blocks): lru finds 29.6 % of blocks there, 81 % of what any size could find.",
                     "Twice that adds 4.2 points; half of it costs 6.8."]},
    }


def compare(sizes=("1%", "2%", "5%", "10%", "20%"), host=""):
    rng = random.Random(2)
    rows = []
    for trace, top in (("conversation.jsonl", 0.366), ("toolagent.jsonl", 0.592), ("synthetic.jsonl", 0.661)):
        for step, device in enumerate(sizes):
            best = top * (0.55 + 0.45 * (step + 1) / len(sizes))
            for rank, policy in enumerate(("lru", "lfu", "fifo", "slru")):
                ratio = round(best * (0.93 - 0.09 * rank + 0.01 * step), 5)
                rows.append({"trace": trace, "policy": policy, "device": device, "host": host, "store": "",
                             "requests": 12_031, "unique_blocks": 182_790, "hit_ratio_blocks": ratio,
                             "hit_ratio_tokens": round(ratio - 0.003, 5),
                             "evicted_tokens": rng.randrange(10 ** 6, 10 ** 8),
                             "wall_seconds": round(rng.uniform(0.4, 3), 3), "optimum": round(best, 5)})
    return {"command": "compare", "version": "0.1.0", "rows": rows}


def compare_bars():
    return compare(sizes=("5%", "10%"), host="20%")


def minimal():
    return {"command": "replay", "requests": 0, "series": [], "operations": {}}


def hostile():
    """Strings from traces and settings, everywhere that results have strings, and names too."""
    results = replay(windows=12)
    results["trace"]["files"] = [HOSTILE, HOSTILE_TAG]
    results["settings"].update(policy=HOSTILE, store=HOSTILE_TAG, model="{{title}} ${1} &lt;b&gt;")
    results["operations"][HOSTILE] = results["operations"]["match"]
    results["misses"][HOSTILE_TAG] = 7
    results[HOSTILE_TAG] = HOSTILE
    return results


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
