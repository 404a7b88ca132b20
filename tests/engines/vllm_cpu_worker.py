# SPDX-License-Identifier: Apache-2.0
"""Lets vLLM's offloading run where the device is the CPU: its worker copies by memcpy.

vLLM refuses to offload on this platform, because its worker needs streams and events of a GPU.
`install()` puts a worker in its place that has copied when a submit returns. Everything else is
vLLM's: who is offloaded and loaded when, the shared region, and the address of a block. The tests
use it for both sides of a comparison.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

import numpy as np
import torch
from vllm.utils.math_utils import cdiv
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu import gpu_worker
from vllm.v1.kv_offload.cpu import spec as cpu_spec
from vllm.v1.kv_offload.tiering import spec as tiering_spec


class MemcpyWorker(OffloadingWorker):
    """Takes the arguments of vLLM's CPUOffloadingWorker; owns the region as that does."""

    def __init__(
        self,
        kv_caches: Any,
        blocks_per_chunk: int,
        num_cpu_chunks: int,
        mmap_region: Any = None,
        canonical_layout: bool = False,
    ) -> None:
        if canonical_layout:
            raise NotImplementedError("canonical_layout: not copied by the worker for tests")
        self._region = mmap_region
        self._blocks_per_chunk = blocks_per_chunk
        self._groups = kv_caches.group_data_refs
        self._device = [tensor.tensor for tensor in kv_caches.tensors]
        sizes = [tensor.page_size_bytes * blocks_per_chunk for tensor in kv_caches.tensors]
        self._host = [
            torch.zeros((num_cpu_chunks, size), dtype=torch.int8)
            if mmap_region is None
            else mmap_region.create_next_worker_view(size)
            for size in sizes
        ]
        self._finished: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, src_spec, dst_spec, to_host=True)

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        return self._copy(job_id, dst_spec, src_spec, to_host=False)

    def _copy(self, job_id: int, device: Any, host: Any, to_host: bool) -> bool:
        """A group's blocks are neighbours in a request; its first may lie inside a chunk."""
        began = time.perf_counter()
        num_bytes = first_block = first_chunk = 0
        for refs, size, index in zip(self._groups, device.group_sizes, device.block_indices):
            skip = index % self._blocks_per_chunk
            blocks = device.block_ids[first_block : first_block + size]
            num_chunks = cdiv(size + skip, self._blocks_per_chunk) if size else 0
            chunks = host.block_ids[first_chunk : first_chunk + num_chunks]
            first_block += size
            first_chunk += num_chunks
            for ref in refs if size else ():
                on_device = _addresses(self._device[ref.tensor_idx], blocks, size, 1, 0)
                on_host = _addresses(
                    self._host[ref.tensor_idx], chunks, size, self._blocks_per_chunk, skip
                )
                pairs = (on_host, on_device) if to_host else (on_device, on_host)
                for target, source in zip(*pairs):
                    ctypes.memmove(target, source, ref.page_size_bytes)
                num_bytes += size * ref.page_size_bytes
        assert first_block == len(device.block_ids) and first_chunk == len(host.block_ids)
        self._finished.append(
            TransferResult(job_id, True, num_bytes, time.perf_counter() - began)
        )
        return True

    def get_finished(self) -> list[TransferResult]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """A copy has ended when its submit returns."""

    def shutdown(self) -> None:
        self._device.clear()
        self._host.clear()  # views of the region, which cannot be closed before they are gone
        if self._region is not None:
            self._region.cleanup()
            self._region = None


def _addresses(
    tensor: torch.Tensor, ids: np.ndarray, count: int, blocks_per_chunk: int, skip: int
) -> list[int]:
    out = np.empty(count, dtype=np.uint64)
    gpu_worker.compute_sub_block_ptrs(ids, blocks_per_chunk, out, tensor, skip)
    return out.tolist()


def install() -> None:
    def get_worker(self: Any, kv_caches: Any) -> Any:
        if self._worker is None:
            self._worker = self.create_worker(kv_caches)
        return self._worker

    for module in (gpu_worker, cpu_spec, tiering_spec):
        module.CPUOffloadingWorker = MemcpyWorker
    cpu_spec.CPUOffloadingSpec.get_worker = get_worker
