# SPDX-License-Identifier: Apache-2.0
"""Ranks over torch.distributed: two real processes, and a cache in each that agrees with the
other's."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import sys
import numpy as np
import torch.distributed as dist
import pando
from pando.torch_ranks import TorchRanks

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
ranks = TorchRanks()
assert (ranks.rank, ranks.size) == (rank, 2)
mine = np.array([rank, 5 - rank, -(2**60)], dtype=np.int64)
assert ranks.min(mine).tolist() == [0, 4, -(2**60)]
assert ranks.max(mine).tolist() == [1, 5, -(2**60)]
assert mine.tolist() == [rank, 5 - rank, -(2**60)], "what was given is left alone"
ranks.barrier()

# Rank 1 has half the host memory: what the host keeps is agreed on.
geometry = pando.mha_geometry(num_layers=2, heads=1, head_dim=4, page_size=4)
device = pando.KvPool(geometry, capacity_tokens=256)
host = pando.HostPool(device, ratio=0.5 if rank == 0 else 0.25, keep_free_bytes=0)
allocator = pando.PagedAllocator(256, page_size=4)
cache = pando.PrefixCache(
    allocator,
    host=pando.HostTierOptions(
        full=pando.TierPools(device=device, host=host),
        copier=pando.make_cpu_copier(),
        write_policy="write_through",
    ),
    ranks=ranks,
)
for prompt in range(8):
    request = cache.start(np.arange(20) + 100 * prompt)
    cache.allocate(request)
    cache.finish(request)
    cache.poll()
digests = np.array([cache.inspect.digest() % 2**62], dtype=np.int64)
assert ranks.min(digests) == ranks.max(digests)
print("agreed", rank)
dist.destroy_process_group()
"""


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_two_processes_agree(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", RANK]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for rank, process in enumerate(processes):
            output, _ = process.communicate(timeout=120)
            assert process.returncode == 0 and f"agreed {rank}" in output, output
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_it_says_so() -> None:
    from pando.torch_ranks import TorchRanks

    with pytest.raises(RuntimeError, match="needs torch"):
        TorchRanks()
