# SPDX-License-Identifier: Apache-2.0
"""Pools in a GPU's memory, beside torch. Skipped where there is no GPU."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pando
import pytest
from pando import DType

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

GEOMETRY = pando.mha_geometry(num_layers=3, heads=2, head_dim=8, page_size=4)


def rows(count: int, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.randn((count, 2, 8), device="cuda").to(torch.bfloat16)


def slots_of(tensor: Any) -> Any:
    return tensor.reshape(-1, *tensor.shape[-2:])


@pytest.mark.parametrize("layout", [pando.DeviceLayout.layer_first, pando.DeviceLayout.page_major])
def test_torch_sees_what_is_written(layout: pando.DeviceLayout) -> None:
    pool = pando.KvPool(GEOMETRY, 64, pando.make_cuda_arena(), layout=layout)
    view = pool.key(1)
    assert view.kind == pando.MemoryKind.cuda and view.__dlpack_device__() == (2, 0)
    tensor = torch.from_dlpack(view)
    assert tensor.is_cuda and tensor.dtype == torch.bfloat16
    assert tensor.data_ptr() == view.address
    new = rows(3)
    pool.set(1, [4, 9, 60], [new, new * 2])
    assert torch.equal(slots_of(tensor)[[4, 9, 60]], new)
    pool.set(1, [5, 6, 7], [new.float(), pando.Rows(new.float(), scale=2.0)])
    assert torch.equal(slots_of(tensor)[5:8], new)
    value = torch.from_dlpack(pool.value(1))
    assert torch.equal(slots_of(value)[5:8], (new.float() / 2).to(torch.bfloat16))
    pool.move([20, 21], [4, 60])
    assert torch.equal(slots_of(tensor)[20:22], new[[0, 2]])
    saved = pool.save([4, 9, 60])
    pool.restore(saved, [30, 31, 32])
    assert torch.equal(slots_of(tensor)[30:33], new)
    with pytest.raises(pando.InvalidArgument, match="GPU's memory"):
        view.numpy()
    with pytest.raises(pando.InvalidArgument, match="in memory of the host, the pool of a GPU"):
        pool.set(0, [4], [new[:1].cpu(), new[:1].cpu()])
    with pytest.raises(pando.InvalidArgument, match="make it contiguous"):
        pool.set(0, [4], [new[:1].transpose(1, 2).contiguous().transpose(1, 2)] * 2)
    del pool, view
    gc.collect()
    assert torch.equal(slots_of(tensor)[4], new[0]), "the tensor keeps the pool"


def test_torchs_own_buffers_are_adopted() -> None:
    layers = [
        torch.zeros((2, 17, 4, 2, 8), dtype=torch.bfloat16, device="cuda") for _ in range(3)
    ]
    pool = pando.KvPool.adopt(GEOMETRY, [[t[0] for t in layers], [t[1] for t in layers]])
    assert pool.memory_kind == pando.MemoryKind.cuda and pool.num_pages == 17
    new = rows(2)
    pool.set(2, [7, 33], [new, -new])
    torch.cuda.synchronize()
    assert torch.equal(layers[2][0].reshape(-1, 2, 8)[[7, 33]], new)
    assert torch.equal(layers[2][1].reshape(-1, 2, 8)[[7, 33]], -new)
    with pytest.raises(pando.InvalidArgument, match="another kind of memory"):
        pando.KvPool.adopt(GEOMETRY, [[t[0] for t in layers], [t[1].cpu() for t in layers]])
    arena = pando.make_user_arena(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
    assert arena.kind == pando.MemoryKind.cuda
    assert pando.KvPool(GEOMETRY, 64, arena).memory_kind == pando.MemoryKind.cuda


@pytest.mark.parametrize("order", [pando.LoadOrder.by_layer, pando.LoadOrder.by_page])
@pytest.mark.parametrize(
    "layout",
    [
        pando.HostLayout.layer_first,
        pando.HostLayout.page_first,
        pando.HostLayout.page_first_direct,
        pando.HostLayout.page_head,
    ],
)
def test_pages_go_to_the_host_and_back(layout: pando.HostLayout, order: pando.LoadOrder) -> None:
    device = pando.KvPool(GEOMETRY, 64, pando.make_cuda_arena())
    host = pando.HostPool(device, layout=layout, ratio=2.0, keep_free_bytes=0)
    assert host.memory_kind == pando.MemoryKind.pinned
    copier = pando.make_cuda_copier(staging_bytes=1 << 20)
    before = []
    for layer in range(3):
        new = rows(68, seed=layer)
        device.set(layer, np.arange(68), [new, -new])
        before.append(new)
    pages = host.alloc(3)
    host.protect_write(pages)
    copier.wait_for_stream(torch.cuda.current_stream().cuda_stream, 0)
    copier.backup(device, host, [2, 5, 9], pages).wait()
    host.complete_write(pages)
    host.device_gone(pages)
    host.protect_load(pages)
    load = copier.load(device, host, [11, 12, 13], pages, stream=1, order=order)
    device.gate(load)
    for layer in range(3):
        device.wait_layer_on(layer, torch.cuda.current_stream().cuda_stream)
        key = torch.from_dlpack(device.key(layer))
        for source, target in zip([2, 5, 9], [11, 12, 13]):
            got = slots_of(key)[4 * target : 4 * target + 4]
            assert torch.equal(got, before[layer][4 * source : 4 * source + 4])
    load.wait()
    host.complete_load(pages)
    del device, host, copier
    gc.collect()


def test_fp8_is_written_from_bf16() -> None:
    geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=8, dtype=DType.fp8_e4m3)
    pool = pando.KvPool(geometry, 16, pando.make_cuda_arena())
    new = rows(4)
    pool.set(0, [1, 2, 3, 4], [new, new.to(torch.float8_e4m3fn).view(torch.uint8)])
    expected = new.to(torch.float8_e4m3fn).view(torch.uint8)
    buffers = [torch.zeros((17, 2, 8), dtype=torch.uint8, device="cuda") for _ in range(2)]
    pando.KvPool.adopt(geometry, [[b] for b in buffers]).set(0, [1, 2, 3, 4], [new, new])
    assert torch.equal(buffers[0][1:5], expected) and torch.equal(buffers[1], buffers[0])
    for view in (pool.key(0), pool.value(0)):
        tensor = torch.from_dlpack(view)
        assert torch.equal(tensor.view(torch.uint8)[1:5], expected)


def test_sglang_rows_are_read_while_the_schedulers_stream_waits() -> None:
    """The scheduler's stream is behind a computation; what was written before is read at once."""
    from pando.sglang.tensors import DeviceSlots

    slots = DeviceSlots(torch, torch.device("cuda"))
    table = torch.zeros(4, 4096, dtype=torch.int32, device="cuda")
    wanted = torch.randint(1, 1 << 20, (3000,), dtype=torch.int32)
    table[2, :3000] = wanted.cuda()
    np.testing.assert_array_equal(slots.host_row(table, 2, 3000), wanted)  # nobody has told: waits
    slots.rows_written()
    slots.to_engine(np.arange(3000))  # allocates what the calls below use again
    slots.host_row(table, 2, 3000)
    torch.cuda.synchronize()

    scheduler = torch.cuda.Stream()
    with torch.cuda.stream(scheduler):
        table[3, :3000] = wanted.to("cuda", non_blocking=True) + 7
        slots.rows_written()
        torch.cuda._sleep(2_000_000_000)  # about a second
        busy = torch.cuda.Event()
        busy.record()
        np.testing.assert_array_equal(slots.host_row(table, 3, 3000), wanted + 7)
        sent = slots.to_engine(np.arange(100_000))
        assert not busy.query(), "reading or sending waited for the computation"
    scheduler.synchronize()
    np.testing.assert_array_equal(sent.cpu().numpy(), np.arange(100_000))
