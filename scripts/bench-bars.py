#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints benchmarks of a Google Benchmark JSON file beside their bars.

    scripts/bench-bars.py build/release/bench.json
    scripts/bench-bars.py --gpu build/release/bench-gpu.json
    scripts/bench-bars.py --store build/release/bench-store.json

Figures move with the machine's load, so a missed bar is shown, not an error; a bar whose benchmark
is missing is.
"""
import json
import re
import sys

# What a benchmark's name begins with, its counter, "<=" or ">=", the bar (None: shown without).
BARS = [
    ("Match/tokens:8192/page:64", "limit_ratio", "<=", 1.2),
    ("MatchWindow/tokens:8192/page:64", "limit_ratio", "<=", 2.0),
    ("MatchCold/tokens:8192/page:64", "limit_ratio", "<=", 1.2),
    ("MatchShort/tokens:640/leaves:100000", "limit_ratio", "<=", 2.5),
    ("Insert/tokens:8192/page:64", "limit_ratio", "<=", 1.5),
    ("EvictOne/leaves:1000", "mean_ns", "<=", 500),
    ("EvictOne/leaves:100000", "mean_ns", "<=", 500),
    ("EvictOne/leaves:1000000", "mean_ns", "<=", 500),
    ("EvictOne/leaves:1000000", "limit_ratio", "<=", 5),
    ("EvictWindow/leaves:1000", "mean_ns", "<=", None),
    ("EvictWindow/leaves:100000", "mean_ns", "<=", None),
    ("EvictWindow/leaves:1000000", "mean_ns", "<=", None),
    ("EvictWindow/leaves:1000000", "limit_ratio", "<=", 10),
    ("MatchRetention/tokens:8192/policy:lru", "of_plain", "<=", 1.3),
    ("MatchRetention/tokens:8192/policy:hazard", "of_plain", "<=", 1.3),
    ("EvictRetention/leaves:1000", "of_plain", "<=", 1.3),
    ("EvictRetention/leaves:100000", "of_plain", "<=", 1.3),
    ("EvictRetention/leaves:1000000", "of_plain", "<=", 1.3),
    ("EvictHazard/leaves:1000", "of_lru", "<=", 3),
    ("EvictHazard/leaves:100000", "of_lru", "<=", 3),
    ("EvictHazard/leaves:1000000", "of_lru", "<=", 3),
    ("WindowRelease/requests:256", "limit_ratio", "<=", None),
    ("Metadata/page:64", "bytes_per_token", "<=", 6),
    ("Metadata/page:1", "bytes_per_token", "<=", 16),
    ("SlotMemory/sequences:1000", "of_tokens", "<=", 2),
    ("SlotFind/tokens:1000", "limit_ratio", "<=", None),
    ("AllocExtend", "limit_ratio", "<=", None),
    ("AllocDecode", "limit_ratio", "<=", None),
    ("FreeTokens", "limit_ratio", "<=", None),
    ("PollIdle", "work_ns", "<=", 50),
    ("PollCompletions/1000", "ns_per_completion", "<=", 200),
    ("HostEvict/nodes:1000", "work_ns", "<=", None),
    ("HostEvict/nodes:1000000", "work_ns", "<=", None),
    ("HostEvict/nodes:1000000", "limit_ratio", "<=", 10),
    ("BackupBookkeeping/nodes:1000", "work_ns", "<=", None),
    ("BackupBookkeeping/nodes:1000000", "work_ns", "<=", None),
    ("BackupBookkeeping/nodes:1000000", "limit_ratio", "<=", 10),
    ("LoadBack/tokens:8192", "of_memcpy", ">=", 0.7),
    ("HashChain/tokens:8192/page:16/sha256", "limit_ratio", "<=", 1.3),
    ("HashChain/tokens:8192/page:16/sha256", "of_independent", "<=", None),
    ("HashChain/tokens:8192/page:16/sglang", "limit_ratio", "<=", None),
    ("HashChain/tokens:8192/page:16/keyed", "times_sha256", ">=", 5),
    ("TakeFree/blocks:1000", "ns_per_block", "<=", 15),
    ("TakeCacheFree/blocks:1000", "ns_per_block", "<=", None),
    ("TakeEvict/blocks:100000/hazard", "of_lru", "<=", 3),
    ("BlockMatch/tokens:32768/page:16", "ns_per_block", "<=", 40),
]
LAYOUTS = ["layer_first", "page_first", "page_first_direct", "page_head"]
BARS += [
    (f"{call}/layout:{layout}/page:{page}", "of_memcpy", ">=", bar)
    for call in ("Backup", "Load", "LoadByPage")
    for layout in LAYOUTS
    for page, bar in ((64, 0.8), (1, 0.5))
]


def gpu_bar(layout: str, page: int) -> float | None:
    if page == 64 and layout != "layer_first":
        return 0.97  # a host page is one long piece: the copy engines
    if page == 1 and layout == "page_head":
        return None  # pieces of 256 bytes
    return 0.92


GPU_BARS = [
    (f"{call}/host:{layout}/device:{device}/page:{page}/", "of_contiguous", ">=",
     0.90 if call == "GpuLoadByLayer" else gpu_bar(layout, page))
    for call in ("GpuBackup", "GpuLoad", "GpuLoadByLayer")
    for device in ("layer_first", "page_major")
    for layout in LAYOUTS
    for page in (1, 16, 64)
]
GPU_BARS += [
    (f"{call}/piece:{piece}/", "of_contiguous", ">=", 0.92 if piece >= 1024 else None)
    for call in ("GpuBackupPieces", "GpuLoadPieces")
    for piece in (512, 1024, 2048, 4096)
]
GPU_BARS += [(f"GpuMove/page:{page}/", "of_contiguous", ">=", 0.85) for page in (1, 64)]

STORE_BARS = [
    (f"{call}/size:{size}MiB", "of_fio", ">=", 0.85)
    for call in ("FileRead", "FileWrite")
    for size in (1, 4)
]
STORE_BARS += [
    (f"{call}/size:{size}KiB", counter, ">=", bar)
    for call in ("FileRead", "FileWrite")
    for size in (64, 128, 256)
    for counter, bar in (("of_fio", 0.9), ("of_plain_files", 1.0))
]
STORE_BARS += [(f"FileReplace/size:{size}KiB", "of_fio", ">=", None) for size in (64, 128, 256)]
STORE_BARS += [(f"FileReplace/size:{size}MiB", "of_fio", ">=", None) for size in (1, 4)]
STORE_BARS += [("FileOpen/pages:100000", "open_s", "<=", 5)]
STORE_BARS += [
    (f"Redis{where}{call}/size:1MiB", "of_redis_benchmark", ">=", bar)
    for where, bar in (("", 0.85), ("Cluster", None))
    for call in ("Read", "Write")
]


def main() -> int:
    sets = {"--gpu": GPU_BARS, "--store": STORE_BARS}
    args = [a for a in sys.argv[1:] if a not in sets]
    bars = next((sets[a] for a in sys.argv[1:] if a in sets), BARS)
    with open(args[0], encoding="utf-8") as file:
        found = {re.sub("/iterations:.*", "/", b["name"]): b for b in json.load(file)["benchmarks"]}
    missing = 0
    print(f"\n{'benchmark':<62}{'counter':<18}{'measured':>10}{'bar':>10}")
    for name, counter, sign, bar in bars:
        value = found.get(name, {}).get(counter)
        if value is None:
            missing += 1
            print(f"{name:<62}{counter:<18}{'missing':>10}")
            continue
        shown = "-" if bar is None else f"{sign} {bar}"
        kept = bar is None or (value <= bar if sign == "<=" else value >= bar)
        print(f"{name:<62}{counter:<18}{value:>10.3f}{shown:>10}{'' if kept else '  MISSED'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
