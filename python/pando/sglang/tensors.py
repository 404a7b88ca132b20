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
    """The engine works with torch tensors on a device."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        self._device = device

    def to_host(self, slots: Any) -> Any:
        return slots.cpu().numpy()

    def to_engine(self, slots: np.ndarray) -> Any:
        return self._torch.from_numpy(slots).to(self._device)

    def empty(self) -> Any:
        return self._torch.empty(0, dtype=self._torch.int64, device=self._device)

    def host_row(self, table: Any, row: int, length: int) -> Any:
        return table[row, :length].cpu().numpy()

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
