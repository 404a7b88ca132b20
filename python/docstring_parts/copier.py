# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class Transfer:
    def wait(self):
        """Blocks until finished; raises if it failed or was cancelled."""

    def duration(self):
        """Seconds that it ran; 0 until it has ended."""


class Copier:
    """Moves pages between a KvPool and its HostPool while the caller goes on.

    >>> geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4, page_size=4)
    >>> device = pando.KvPool(geometry, capacity_tokens=64)
    >>> host = pando.HostPool(device, ratio=2.0, keep_free_bytes=0)
    >>> copier = pando.make_cpu_copier()
    >>> pages = host.alloc(2)
    >>> host.protect_write(pages)
    >>> transfer = copier.backup(device, host, [5, 7], pages)
    >>> transfer.wait()
    >>> host.complete_write(pages)
    >>> transfer.size_bytes
    512
    """

    def wait_for_stream(self):
        """Transfers asked of `stream` from now on begin after everything that has been
        queued on the caller's CUDA stream so far, for instance after the kernels that
        write the pages (`torch.cuda.current_stream().cuda_stream`). Unavailable where
        nothing runs on a GPU.
        """


def make_cpu_copier():
    """For pools in host memory.

    >>> pando.make_cpu_copier(num_streams=2).num_streams
    2
    """


def make_cuda_copier():
    """...

    `max_blocks`: thread blocks of a copy that crosses the bus. From `engine_…_bytes`
    contiguous bytes of a host page on, copy engines take over from kernels, through
    `staging_bytes` of device memory per stream.
    """
