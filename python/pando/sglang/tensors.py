# SPDX-License-Identifier: Apache-2.0
"""Slots go to the library as NumPy arrays and come back as what the engine works with.

One of three kinds is chosen when a cache is made: NumPy itself (no torch needed), torch on the CPU
(the same memory, no copies), torch on a device (one copy each way).
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pando


class NumpySlots:
    """The engine works with NumPy arrays."""

    def to_host(self, slots: Any) -> Any:
        return slots

    def to_engine(self, slots: np.ndarray) -> Any:
        return slots

    def empty(self) -> Any:
        return np.empty(0, np.int64)

    def host_row(self, table: Any, row: int, length: int) -> Any:
        """The first slots of a request, on the host. They may be the table's own memory."""
        return table[row, :length]

    def row(self, table: Any, row: int, host: np.ndarray) -> Any:
        """The same as a copy of int64 for the engine; `host` is what host_row() gave."""
        return pando.copy_slots(host)

    def rows_written(self) -> None:
        """The rows of the next batch have been written, or queued to be: from here on host_row()
        gives what they have now."""


class TorchSlots(NumpySlots):
    """The engine works with torch tensors on the CPU."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.to_engine = torch.from_numpy  # type: ignore[method-assign]
        self._table: Any = None
        self._rows: Any = None

    def to_host(self, slots: Any) -> Any:
        return slots.numpy()

    def host_row(self, table: Any, row: int, length: int) -> Any:
        if table is not self._table:  # NumPy takes a slice in a tenth of torch's time
            self._table, self._rows = table, table.numpy()
        return self._rows[row, :length]

    def empty(self) -> Any:
        return self._torch.empty(0, dtype=self._torch.int64)

    def row(self, table: Any, row: int, host: np.ndarray) -> Any:
        return self._torch.from_numpy(pando.copy_slots(host))


class DeviceSlots(NumpySlots):
    """The engine works with torch tensors on a device.

    SGLang's scheduler prepares a batch while the one before is computed, and makes its stream wait
    for that computation. So nothing here may wait for the scheduler's stream: slots are sent from
    pinned memory, and rows are read on a stream of our own, which waits only for the point at which
    the last batch's rows had been written. (Reading them on the scheduler's stream delayed first
    tokens by up to 350 ms in a burst of long prompts.)
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._device = device
        self._is_cuda = getattr(device, "type", None) == "cuda"
        self._reader: Any = None  # our stream, once somebody tells when rows have been written
        self._written: Any = None  # a point on the scheduler's stream

    def rows_written(self) -> None:
        if not self._is_cuda:
            return
        cuda = self._torch.cuda
        if self._reader is None:
            # Of high priority, because streams of equal priority may be one and the same in torch.
            self._reader = cuda.Stream(self._device, priority=-1)
            self._written = cuda.Event()
        self._written.record(cuda.current_stream(self._device))

    def to_host(self, slots: Any) -> Any:
        return slots.cpu().numpy()

    def to_engine(self, slots: np.ndarray) -> Any:
        if not self._is_cuda:
            return self._torch.from_numpy(slots).to(self._device)
        pinned = self._torch.empty(len(slots), dtype=self._torch.int64, pin_memory=True)
        pinned.numpy()[:] = slots
        return pinned.to(self._device, non_blocking=True)  # torch keeps `pinned` until it is sent

    def empty(self) -> Any:
        return self._torch.empty(0, dtype=self._torch.int64, device=self._device)

    def host_row(self, table: Any, row: int, length: int) -> Any:
        of_row = table[row, :length]
        if self._reader is None:
            return of_row.cpu().numpy()
        pinned = self._torch.empty(length, dtype=table.dtype, pin_memory=True)
        with self._torch.cuda.stream(self._reader):
            self._reader.wait_event(self._written)
            pinned.copy_(of_row, non_blocking=True)
        self._reader.synchronize()
        return pinned.numpy()

    def row(self, table: Any, row: int, host: np.ndarray) -> Any:
        # There already: nothing to send.
        return table[row, : len(host)].to(self._torch.int64, copy=True)


def slots_of(table: Any, device: Any) -> NumpySlots:
    """The kind that fits the engine's table of slots, or its device where there is no table."""
    if isinstance(table, np.ndarray):
        return NumpySlots()
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return NumpySlots()
    if table is not None:
        device = table.device
    device = torch.device(device if isinstance(device, (str, torch.device)) else "cpu")
    return TorchSlots(torch) if device.type == "cpu" else DeviceSlots(torch, device)
