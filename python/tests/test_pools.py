# SPDX-License-Identifier: Apache-2.0
"""Arenas, geometries, pools and copiers, against NumPy."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pando
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pando import DeviceLayout, DType, HostLayout, PageState

NUMPY_OF = {
    DType.fp16: np.float16,
    DType.bf16: np.uint16,
    DType.fp32: np.float32,
    DType.fp8_e4m3: np.uint8,
    DType.fp8_e5m2: np.uint8,
    DType.int8: np.int8,
}


def mha(page_size: int = 4, dtype: DType = DType.fp32, num_layers: int = 3) -> pando.Geometry:
    return pando.mha_geometry(
        num_layers=num_layers, heads=2, head_dim=4, page_size=page_size, dtype=dtype
    )


def random_bits(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> np.ndarray:
    size = int(np.prod(shape)) * pando.size_of(dtype)
    raw = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    return raw.view(NUMPY_OF[dtype]).reshape(shape)


def fill(pool: pando.KvPool, seed: int = 0) -> None:
    """Random bytes everywhere, through views."""
    geometry = pool.geometry
    for layer in range(geometry.first_layer, geometry.first_layer + geometry.num_layers):
        for i in range(len(geometry.planes)):
            array = pool.view(layer, i).numpy()
            array[...] = random_bits(array.shape, geometry.planes[i].dtype, seed + 100 * layer + i)


def contents(pool: pando.KvPool) -> list[np.ndarray]:
    """Copies, by layer and plane: (slots, heads, dim) as bits."""
    out = []
    geometry = pool.geometry
    for layer in range(geometry.first_layer, geometry.first_layer + geometry.num_layers):
        for i, plane in enumerate(geometry.planes):
            array = pool.view(layer, i).numpy().copy()
            bits = array.view(f"u{array.dtype.itemsize}")
            out.append(bits.reshape(-1, plane.heads, plane.dim))
    return out


# ---- Arenas.


def test_arenas_say_what_they_are() -> None:
    assert pando.make_malloc_arena().kind == pando.MemoryKind.host
    assert pando.make_huge_page_arena().available_bytes > 0
    assert pando.available_memory() > 1 << 20
    with pytest.raises(pando.InvalidArgument, match="node 4095"):
        pando.make_numa_arena(4095)


def test_user_arena_carves_from_a_buffer_and_keeps_it() -> None:
    memory = np.zeros(1 << 16, np.uint8)
    seen = weakref.ref(memory)
    start = memory.ctypes.data
    pool = pando.KvPool(mha(), 16, pando.make_user_arena(memory))
    view = pool.key(0)
    assert start <= view.address < start + memory.nbytes
    view.numpy()[5] = 7.0
    assert (memory.view(np.float32) == 7.0).sum() == 8
    del memory, pool
    gc.collect()
    assert seen() is not None and view.numpy()[5, 0, 0] == 7.0
    del view
    gc.collect()
    assert seen() is None


def test_user_arena_holds_a_bytearray_in_place() -> None:
    memory = bytearray(1 << 14)
    arena = pando.make_user_arena(memory)
    with pytest.raises(BufferError):
        memory.extend(b"x")
    del arena
    gc.collect()
    memory.extend(b"x")


@pytest.mark.parametrize("memory", [b"read only", 3, np.zeros((4, 4))[:, :2]])
def test_user_arena_refuses_what_cannot_be_written(memory: Any) -> None:
    with pytest.raises(pando.InvalidArgument):
        pando.make_user_arena(memory)


def test_user_arena_that_is_too_small_names_sizes() -> None:
    arena = pando.make_user_arena(bytearray(1000))
    with pytest.raises(pando.OutOfCapacity, match="kv pool of 5 pages"):
        pando.KvPool(mha(), 16, arena)
    with pytest.raises(pando.InvalidArgument, match="expected an Arena"):
        pando.KvPool(mha(), 16, "malloc")  # type: ignore[arg-type]


# ---- Geometry.


def test_families_have_their_planes() -> None:
    mla = pando.mla_geometry(num_layers=2, nope_dim=12, rope_dim=4, page_size=8)
    assert [p.name for p in mla.planes] == ["latent"] and mla.planes[0].first_part == 12
    split = pando.mla_geometry(num_layers=2, nope_dim=12, rope_dim=4, split=True)
    assert [p.name for p in split.planes] == ["nope", "rope"]
    dsa = pando.dsa_geometry(
        num_layers=1, nope_dim=12, rope_dim=4, index_dim=8, index_scale=True
    )
    assert [p.name for p in dsa.planes] == ["latent", "index_key", "index_scale"]
    sparse = pando.double_sparse_geometry(num_layers=1, heads=2, head_dim=8, label_dim=2)
    assert sparse.planes[2] == pando.Plane(name="label", heads=2, dim=2, dtype=DType.bf16)


def test_geometry_is_a_value() -> None:
    a, b = mha(), mha()
    assert a == b and a != mha(page_size=8) and a != 3
    assert a.describe() == b.describe()
    assert a.page_bytes == a.token_bytes * 4 == 4 * 3 * 2 * 2 * 4 * 4
    assert a.plane_page_bytes(a.planes[0]) * 2 == a.page_bytes
    b.num_layers = 0
    with pytest.raises(pando.InvalidArgument):
        b.validate()
    with pytest.raises(pando.Error, match="label"):
        a.plane_index("label")
    with pytest.raises(TypeError, match="no option 'layers'"):
        pando.Geometry(layers=3)  # type: ignore[call-arg]


# ---- KvPool.


@pytest.mark.parametrize("layout", [DeviceLayout.layer_first, DeviceLayout.page_major])
@pytest.mark.parametrize("dtype", list(NUMPY_OF))
def test_rows_of_the_pools_own_type_come_back(layout: DeviceLayout, dtype: DType) -> None:
    pool = pando.KvPool(mha(dtype=dtype), 32, layout=layout)
    slots = np.array([5, 4, 31, 9])
    rows = [random_bits((4, 2, 4), dtype, i) for i in range(2)]
    pool.set(1, slots, rows)
    for plane in range(2):
        flat = pool.view(1, plane).numpy().reshape(-1, 2, 4)
        assert flat[slots].tobytes() == rows[plane].tobytes()
    assert pool.view(1, "value").shape == pool.view(1, 1).shape
    rank = 4 if layout == DeviceLayout.page_major else 3
    assert len(pool.key(0).shape) == rank


def to_bf16(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=16, max_size=16), st.sampled_from([1, 2.5])
)
@settings(max_examples=50, deadline=None)
def test_fp32_rows_are_rounded_and_scaled(values: list[float], scale: float) -> None:
    pool = pando.KvPool(mha(dtype=DType.bf16), 8)
    rows = np.array(values, np.float32).reshape(2, 8)
    pool.set(0, [1, 2], [pando.Rows(rows, scale=scale), rows])
    expected = to_bf16(rows / np.float32(scale)).reshape(2, 2, 4)
    assert (pool.key(0).numpy()[1:3] == expected).all()
    assert (pool.value(0).numpy()[1:3] == to_bf16(rows).reshape(2, 2, 4)).all()


def test_rows_may_be_strided_and_come_from_other_pools() -> None:
    a, b = pando.KvPool(mha(), 16), pando.KvPool(mha(), 16)
    wide = np.arange(4 * 24, dtype=np.float32).reshape(4, 24)
    a.set(0, [1, 2, 3, 4], [wide[:, :8], wide[:, 8:16]])  # rows apart
    a.set(1, [1, 2, 3, 4], [wide[::-1, :8], wide[:, ::3]])  # reversed, elements apart
    assert (a.key(0).numpy()[1:5].reshape(4, 8) == wide[:, :8]).all()
    assert (a.key(1).numpy()[1:5].reshape(4, 8) == wide[::-1, :8]).all()
    assert (a.value(1).numpy()[1:5].reshape(4, 8) == wide[:, ::3]).all()
    b.set(0, np.arange(20), [a.key(0), a.value(0)])
    # Memory that was never written to may hold anything, also what is unequal to itself.
    np.testing.assert_array_equal(b.key(0).numpy(), a.key(0).numpy())


@pytest.mark.parametrize(
    ("planes", "message"),
    [
        ([np.zeros((2, 8), np.float32)], "1 are given; expected 2"),
        ([np.zeros((2, 8), np.float32), np.zeros((3, 8), np.float32)], "expected 2 rows of 8"),
        ([np.zeros((2, 9), np.float32)] * 2, "expected 2 rows of 8"),
        ([np.zeros((2, 8), np.int64)] * 2, "elements of int64"),
        ([np.zeros((2, 8), np.uint8)] * 2, "elements of uint8"),
        ([[1.0] * 8] * 2, "got list"),
        (7, "expected a list of 2 arrays, got int"),
        ([np.float32(1)] * 2, r"planes\[0\] \('key'\)"),
    ],
)
def test_bad_rows_change_nothing_and_say_why(planes: Any, message: str) -> None:
    pool = pando.KvPool(mha(), 16)
    fill(pool)
    before = contents(pool)
    with pytest.raises(pando.InvalidArgument, match=message):
        pool.set(0, [1, 2], planes)
    assert all((a == b).all() for a, b in zip(before, contents(pool)))


def test_calls_outside_the_pool_are_refused() -> None:
    pool = pando.KvPool(mha(), 16)
    row = np.zeros((1, 8), np.float32)
    for call in (
        lambda: pool.set(3, [1], [row, row]),
        lambda: pool.set(0, [20], [row, row]),
        lambda: pool.set(0, [-1], [row, row]),
        lambda: pool.view(0, 2),
        lambda: pool.view(0, "label"),
        lambda: pool.view(0, 1.5),  # type: ignore[arg-type]
        lambda: pool.set_parts(0, [1], row, row),
        lambda: pool.save([99]),
        lambda: pool.save([]),
    ):
        with pytest.raises(pando.Error):
            call()


def test_latent_rows_are_written_in_parts() -> None:
    geometry = pando.mla_geometry(num_layers=1, nope_dim=6, rope_dim=2, dtype=DType.fp16)
    pool = pando.KvPool(geometry, 8)
    nope, rope = random_bits((3, 6), DType.fp16, 1), random_bits((3, 2), DType.fp16, 2)
    pool.set_parts(0, [2, 5, 1], nope, rope)
    latent = pool.key(0).numpy()[[2, 5, 1], 0]
    assert latent.tobytes() == np.concatenate([nope, rope], 1).tobytes()
    assert pool.value(0).shape == (9, 1, 6)
    with pytest.raises(pando.InvalidArgument, match="rope"):
        pool.set_parts(0, [2], nope[:1], nope[:1])


PAIRS = st.tuples(st.integers(4, 19), st.integers(0, 19))


@given(st.lists(PAIRS, max_size=16, unique_by=lambda pair: pair[0]))
@settings(max_examples=50, deadline=None)
def test_move_reads_before_it_writes(pairs: list[tuple[int, int]]) -> None:
    pool = pando.KvPool(mha(dtype=DType.bf16), 16)
    fill(pool)
    before = contents(pool)
    dst, src = [d for d, _ in pairs], [s for _, s in pairs]
    pool.move(dst, src)
    for old, new in zip(before, contents(pool)):
        expected = old.copy()
        expected[dst] = old[src]
        assert (new == expected).all()


def test_saved_rows_are_restored_elsewhere_and_outlive_their_pool() -> None:
    pool = pando.KvPool(mha(), 16)
    fill(pool)
    before = contents(pool)
    saved = pool.save([7, 4, 19])
    assert saved.num_tokens == 3 and saved.size_bytes == 3 * mha().token_bytes
    other = pando.KvPool(mha(), 8)
    del pool
    gc.collect()
    other.restore(saved, [4, 5, 6])
    for old, new in zip(before, contents(other)):
        assert (new[4:7] == old[[7, 4, 19]]).all()
    with pytest.raises(pando.InvalidArgument):
        other.restore(saved, [4, 5])
    with pytest.raises(pando.InvalidArgument):
        pando.KvPool(mha(page_size=1), 8).restore(saved, [4, 5, 6])


def test_views_keep_their_pool() -> None:
    view = pando.KvPool(mha(), 16).key(2)
    array = view.numpy()
    array[...] = 3.0
    again = np.asarray(view)
    del view
    gc.collect()
    again[0] = 4.0
    assert array[0, 0, 0] == 4.0 and array[1, 0, 0] == 3.0


def test_views_speak_dlpack() -> None:
    pool = pando.KvPool(mha(dtype=DType.fp16), 16)
    view = pool.key(0)
    assert view.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(view)
    assert array.dtype == np.float16 and array.shape == view.shape
    pool.key(0).numpy()[3] = 1.5
    assert array[3, 1, 3] == 1.5
    assert "(20, 2, 4) of fp16" in repr(view)
    bf16 = pando.KvPool(mha(dtype=DType.bf16), 16).key(0)
    assert bf16.__dlpack__() is not None
    assert bf16.strides == (16, 8, 2)


def test_torch_gets_the_true_type() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pool = pando.KvPool(mha(dtype=DType.bf16), 16)
    tensor = torch.from_dlpack(pool.key(0))
    assert tensor.dtype == torch.bfloat16
    pool.set(0, [3], [torch.full((1, 2, 4), 1.5, dtype=torch.bfloat16)] * 2)
    assert (tensor[3] == 1.5).all()
    del pool
    gc.collect()
    assert (tensor[3] == 1.5).all()
    layers = [torch.zeros((8, 4, 2, 4), dtype=torch.bfloat16) for _ in range(3)]
    adopted = pando.KvPool.adopt(mha(dtype=DType.bf16), [layers, [t.clone() for t in layers]])
    adopted.set(1, [9], [torch.ones((1, 8), dtype=torch.bfloat16)] * 2)
    assert (layers[1][2, 1] == 1).all()


def test_regions_are_where_the_views_are() -> None:
    pool = pando.KvPool(mha(), 16)
    regions = pool.regions()
    assert len(regions) == 6
    assert regions[0].address == pool.view(0, 0).address
    assert regions[0].size_bytes == 20 * 32 and regions[0].item_bytes == 32
    assert pool.planes[1].layers == [pool.view(i, 1).address for i in range(3)]
    bytes_there = (ctypes.c_uint8 * 32).from_address(regions[0].address + 32 * 7)
    pool.key(0).numpy()[7] = 1.0
    assert bytes(bytes_there) == np.ones(8, np.float32).tobytes()


# ---- Adopted pools.


def engine_buffers(shape: tuple[int, ...], layers: int = 3) -> list[np.ndarray]:
    return [np.zeros(shape, np.float32) for _ in range(layers)]


def as_slots(pool: pando.KvPool, layer: int, plane: int) -> np.ndarray:
    view = pool.view(layer, plane).numpy()
    return view.reshape(-1, *view.shape[-2:]) if view.ndim == 4 else view


@pytest.mark.parametrize("kind", ["slots", "pages", "kv", "head_major", "stacked"])
def test_adopted_buffers_are_written_in_place(kind: str) -> None:
    keys: list[np.ndarray] | np.ndarray
    values: list[np.ndarray] | np.ndarray
    if kind == "slots":
        keys, values = engine_buffers((24, 2, 4)), engine_buffers((24, 2, 4))
    elif kind == "pages":
        keys, values = engine_buffers((6, 4, 2, 4)), engine_buffers((6, 4, 2, 4))
    elif kind == "kv":  # one tensor per layer, keys and values of a block together
        both = engine_buffers((6, 2, 4, 2, 4))
        keys, values = [t[:, 0] for t in both], [t[:, 1] for t in both]
    elif kind == "head_major":  # (pages, heads, page, dim)
        raw_k, raw_v = engine_buffers((6, 2, 4, 4)), engine_buffers((6, 2, 4, 4))
        keys = [t.transpose(0, 2, 1, 3) for t in raw_k]
        values = [t.transpose(0, 2, 1, 3) for t in raw_v]
    else:
        keys, values = np.zeros((3, 6, 4, 2, 4), np.float32), np.zeros((3, 24, 2, 4), np.float32)
    pool = pando.KvPool.adopt(mha(), [keys, values])
    assert pool.num_pages == 6 and pool.regions() == []
    rows = np.random.default_rng(1).random((3, 2, 4), np.float32)
    pool.set(2, [4, 11, 23], [rows, -rows])
    for buffers, expected in ((keys, rows), (values, -rows)):
        flat = np.ascontiguousarray(buffers[2]).reshape(-1, 2, 4)
        assert (flat[[4, 11, 23]] == expected).all()
        assert np.count_nonzero(flat) == 24
    seen = pool.view(2, 0).numpy()
    assert (seen.reshape(-1, 2, 4)[[4, 11, 23]] == rows).all()
    moved = [5, 6, 7]
    pool.move(moved, [4, 11, 23])
    assert (np.ascontiguousarray(keys[2]).reshape(-1, 2, 4)[moved] == rows).all()


def test_one_head_may_be_left_out() -> None:
    geometry = pando.mla_geometry(
        num_layers=1, nope_dim=6, rope_dim=2, page_size=4, dtype=DType.fp16
    )
    for shape in ((24, 8), (24, 1, 8), (6, 4, 8), (6, 4, 1, 8)):
        buffer = np.zeros(shape, np.float16)
        pool = pando.KvPool.adopt(geometry, [[buffer]])
        pool.set(0, [9], [np.ones((1, 8), np.float16)])
        assert pool.num_pages == 6 and (buffer.reshape(24, 8)[9] == 1).all()


def test_adopted_buffers_are_kept() -> None:
    keys, values = engine_buffers((24, 2, 4)), engine_buffers((24, 2, 4))
    seen = weakref.ref(keys[1])
    pool = pando.KvPool.adopt(mha(), [keys, values])
    view = pool.key(1).numpy()
    del keys, values, pool
    gc.collect()
    assert seen() is not None
    view[...] = 1.0
    del view
    gc.collect()
    assert seen() is None


def test_addresses_can_be_adopted() -> None:
    keys, values = np.zeros((3, 24, 2, 4), np.float32), np.zeros((3, 24, 2, 4), np.float32)
    planes = [
        pando.PlaneMemory(
            layers=[a[i].ctypes.data for i in range(3)],
            page_stride=128,
            token_stride=32,
            head_stride=16,
        )
        for a in (keys, values)
    ]
    with pytest.raises(pando.InvalidArgument, match="num_pages"):
        pando.KvPool.adopt(mha(), planes)
    pool = pando.KvPool.adopt(mha(), planes, num_pages=6)
    pool.set(1, [23], [np.ones((1, 8), np.float32)] * 2)
    assert (keys[1, 23] == 1).all() and keys.sum() == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda k: k[:2], "memory for 2 layers"),
        (lambda k: [*k[:2], k[2].astype(np.float64)], "elements of float64; expected fp32"),
        (lambda k: [*k[:2], k[2][:20]], "another pages"),
        (lambda k: [*k[:2], np.zeros((24, 2, 8), np.float32)[:, :, ::2]], "8 bytes apart"),
        (lambda k: [*k[:2], np.zeros((24, 4, 4), np.float32)[:, ::2]], "layers before it"),
        (lambda k: [a[:22] for a in k], "whole pages of 4"),
        (lambda k: [a[:, :1] for a in k], "expected \\(slots, 2, 4\\)"),
        (lambda k: [a[::-1] for a in k], "stride of -32"),
        (lambda k: 5, "got int"),
        (lambda k: [*k[:2], "text"], "got str"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(change: Any, message: str) -> None:
    keys = engine_buffers((24, 2, 4))
    with pytest.raises(pando.InvalidArgument, match=message):
        pando.KvPool.adopt(mha(), [change(keys), engine_buffers((24, 2, 4))])


def test_read_only_buffers_are_refused() -> None:
    keys = engine_buffers((24, 2, 4))
    keys[0].flags.writeable = False
    with pytest.raises(pando.InvalidArgument, match="writable"):
        pando.KvPool.adopt(mha(), [keys, engine_buffers((24, 2, 4))])


# ---- Host pools and copies.


def mirror(device: pando.KvPool, layout: HostLayout = HostLayout.page_first) -> pando.HostPool:
    return pando.HostPool(device, layout=layout, ratio=2.0, keep_free_bytes=0)


@pytest.mark.parametrize("order", [pando.LoadOrder.by_layer, pando.LoadOrder.by_page])
@pytest.mark.parametrize("device_layout", [DeviceLayout.layer_first, DeviceLayout.page_major])
@pytest.mark.parametrize(
    "layout",
    [
        HostLayout.layer_first,
        HostLayout.page_first,
        HostLayout.page_first_direct,
        HostLayout.page_head,
    ],
)
def test_pages_go_to_the_host_and_back(
    layout: HostLayout, device_layout: DeviceLayout, order: pando.LoadOrder
) -> None:
    device = pando.KvPool(mha(dtype=DType.bf16), 64, layout=device_layout)
    host = mirror(device, layout)
    copier = pando.make_cpu_copier()
    fill(device)
    before = contents(device)
    pages = host.alloc(5)
    host.protect_write(pages)
    backup = copier.backup(device, host, [3, 1, 16, 7, 2], pages)
    backup.wait()
    host.complete_write(pages)
    assert backup.state == pando.TransferState.done and backup.finished
    assert backup.size_bytes == 5 * device.geometry.page_bytes

    # Bytes of a page: planes one after the other, in the layout's order.
    for i, page in enumerate([3, 1, 16, 7, 2]):
        parts = []
        for plane in range(2):  # (layer, token, head, dim)
            layers = [before[2 * layer + plane] for layer in range(3)]
            share = np.stack([rows[4 * page : 4 * page + 4] for rows in layers])
            axes = {
                HostLayout.layer_first: (0, 1, 2, 3),
                HostLayout.page_first: (1, 0, 2, 3),
                HostLayout.page_first_direct: (0, 1, 2, 3),
                HostLayout.page_head: (2, 1, 0, 3),
            }[layout]
            parts.append(np.ascontiguousarray(share.transpose(axes)).tobytes())
        assert host.read_page(int(pages[i])).tobytes() == b"".join(parts)
        regions = host.page_regions(int(pages[i]))
        assert sum(r.size_bytes for r in regions) == host.page_bytes
        there = b"".join(ctypes.string_at(r.address, r.size_bytes) for r in regions)
        assert there == b"".join(parts)
    assert host.pages_are_contiguous == (layout != HostLayout.layer_first)

    fill(device, seed=9)
    host.device_gone(pages)
    host.protect_load(pages)
    load = copier.load(device, host, [5, 6, 8, 9, 10], pages, stream=1, order=order)
    device.gate(load)
    for layer in range(3):
        device.wait_layer(layer)
    load.wait_layer(2)
    load.wait()
    host.complete_load(pages)
    assert load.layers_ready == 3 and load.duration >= 0
    for old, new in zip(before, contents(device)):
        for source, target in zip([3, 1, 16, 7, 2], [5, 6, 8, 9, 10]):
            assert (new[4 * target : 4 * target + 4] == old[4 * source : 4 * source + 4]).all()
    host.check()


def test_states_of_host_pages() -> None:
    host = mirror(pando.KvPool(mha(), 64))
    pages = host.alloc(3)
    assert pages.tolist() == [0, 1, 2] and host.available_pages == host.num_pages - 3
    assert host.state(0) == PageState.reserved and host.count(PageState.reserved) == 3
    host.protect_write(pages)
    with pytest.raises(pando.InUse):
        host.clear()
    data = np.arange(host.page_bytes, dtype=np.uint8)
    host.load_page(1, data)
    host.load_page(2, bytes(data))
    with pytest.raises(pando.InvalidArgument, match="expected exactly"):
        host.load_page(2, b"short")
    host.complete_write(pages, on_device=False)
    assert host.state(1) == PageState.backed_up
    out = bytearray(host.page_bytes)
    assert host.read_page(1, out) is out and bytes(out) == data.tobytes()
    assert (host.read_page(2) == data).all()
    host.device_came(pages)
    host.device_gone(pages)
    host.protect_load([0])
    host.abort_load([0])
    host.free(pages)
    assert host.available_pages == host.num_pages
    with pytest.raises(pando.InvalidArgument):
        host.read_page(1)
    with pytest.raises(pando.BrokenContract, match="free of host page 1"):
        host.free([1])
    with pytest.raises(pando.OutOfCapacity):
        host.alloc(host.num_pages + 1)
    with pytest.raises(pando.BrokenContract):
        host.state(10**6)
    host.clear()


def test_host_pool_size_is_asked_for_once() -> None:
    device = pando.KvPool(mha(), 64)
    with pytest.raises(pando.InvalidArgument, match="either a ratio or a size"):
        pando.HostPool(device)
    with pytest.raises(pando.InvalidArgument, match="either"):
        pando.HostPool(device, ratio=1.0, size_bytes=1 << 20)
    with pytest.raises(pando.OutOfCapacity, match="must stay free"):
        pando.HostPool(device, ratio=1.0, keep_free_bytes=1 << 60)
    host = pando.HostPool(device, size_bytes=10 * device.geometry.page_bytes, keep_free_bytes=0)
    assert host.num_pages == 10 and host.layout == HostLayout.layer_first
    assert host.geometry == device.geometry
    assert host.region.address == host.planes[0].layers[0]


def test_copier_refuses_bad_pages_and_streams() -> None:
    device = pando.KvPool(mha(), 64)
    host = mirror(device)
    copier = pando.make_cpu_copier(num_threads=1, num_streams=2)
    assert copier.num_streams == 2
    pages = host.alloc(2)
    with pytest.raises(pando.InvalidArgument, match="is reserved; expected it writing"):
        copier.backup(device, host, [1, 2], pages)
    host.protect_write(pages)
    for device_pages, stream in (([1], 0), ([0, 1], 0), ([1, 99], 0), ([1, 2], 2)):
        with pytest.raises(pando.InvalidArgument):
            copier.backup(device, host, device_pages, pages, stream=stream)
    with pytest.raises(pando.Unavailable):
        copier.wait_for_stream(1, 0)
    transfer = copier.backup(device, host, [1, 2], pages)
    with pytest.raises(pando.InvalidArgument, match="no load of this pool"):
        device.gate(transfer)
    transfer.wait()
    with pytest.raises(pando.InvalidArgument, match="no layer 3"):
        transfer.wait_layer(3)


def test_copier_moves_rows() -> None:
    pool = pando.KvPool(mha(), 64)
    fill(pool)
    before = contents(pool)
    copier = pando.make_cpu_copier()
    copier.move(pool, [10, 11], [20, 30]).wait()
    for old, new in zip(before, contents(pool)):
        assert (new[[10, 11]] == old[[20, 30]]).all()
    with pytest.raises(pando.InvalidArgument, match="both read and written"):
        copier.move(pool, [10, 11], [11, 12])


def test_pools_live_until_transfers_have_ended() -> None:
    """Everything dropped while large copies are queued: they end, and nothing is freed early."""
    geometry = pando.mha_geometry(num_layers=4, heads=8, head_dim=64, page_size=16)
    for _ in range(5):
        device = pando.KvPool(geometry, 4096)
        host = pando.HostPool(device, ratio=1.0, keep_free_bytes=0)
        copier = pando.make_cpu_copier(num_threads=2)
        pages = host.alloc(256)
        host.protect_write(pages)
        transfers = [
            copier.backup(device, host, np.arange(1, 257), pages, stream=i % 2) for i in range(3)
        ]
        del device, host
        gc.collect()
        last = transfers.pop()
        del transfers
        last.cancel()
        del copier
        gc.collect()
        assert last.finished
        assert last.state in (pando.TransferState.done, pando.TransferState.cancelled)
        if last.state == pando.TransferState.cancelled:
            with pytest.raises(pando.Unavailable, match="cancelled"):
                last.wait()
            with pytest.raises(pando.Unavailable):
                last.wait_layer(0)


def test_a_cancelled_load_closes_the_gate() -> None:
    geometry = pando.mha_geometry(num_layers=4, heads=8, head_dim=64, page_size=16)
    device = pando.KvPool(geometry, 8192)
    host = pando.HostPool(device, ratio=1.0, keep_free_bytes=0)
    copier = pando.make_cpu_copier(num_threads=1, num_streams=1)
    pages = host.alloc(512)
    host.protect_write(pages)
    host.complete_write(pages, on_device=False)
    host.protect_load(pages)
    loads = [copier.load(device, host, np.arange(1, 513), pages) for _ in range(8)]
    if not loads[-1].cancel():
        pytest.skip("the copies were faster than the test")
    device.gate(loads[-1])
    with pytest.raises(pando.Unavailable, match="cancelled"):
        device.view(0, 0)
    device.open_gate()
    device.view(0, 0)
    for load in loads[:-1]:
        load.wait()


def test_other_threads_run_while_one_waits() -> None:
    geometry = pando.mha_geometry(num_layers=4, heads=8, head_dim=64, page_size=16)
    device = pando.KvPool(geometry, 8192)
    host = pando.HostPool(device, ratio=1.0, keep_free_bytes=0)
    copier = pando.make_cpu_copier()
    pages = host.alloc(512)
    host.protect_write(pages)
    transfer = copier.backup(device, host, np.arange(1, 513), pages)
    threads = [threading.Thread(target=transfer.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_cuda_is_refused_where_there_is_none() -> None:
    try:
        pando.make_cuda_arena()
    except pando.Error as error:
        assert isinstance(error, (pando.Unavailable, pando.IoError))
        with pytest.raises(pando.Error):
            pando.make_cuda_copier()
        with pytest.raises(pando.Error):
            pando.make_pinned_arena()


# ---- Window pools.


def test_window_layers_are_reached_by_full_slots() -> None:
    slots = pando.WindowAllocator(64, 16, page_size=4)
    geometry = mha()
    pool = pando.WindowPool(geometry, slots, full_layers=[0, 2], window_layers=[1])
    mine = slots.alloc(8)
    slots.free_window(mine[:4])
    rows = np.random.default_rng(2).random((8, 2, 4), np.float32)
    for layer in range(3):
        pool.set(layer, mine, [rows, -rows])
    assert (pool.key(2).numpy()[mine] == rows).all()
    window = slots.translate(mine)
    assert (pool.key(1).numpy()[window[4:]] == rows[4:]).all()
    assert pool.full is not None and pool.window is not None
    assert pool.full.geometry.num_layers == 2 and pool.window.geometry.num_layers == 1
    more = slots.alloc(4)
    pool.move(more, mine[4:])
    assert (pool.value(1).numpy()[slots.translate(more)] == -rows[4:]).all()
    assert pool.size_bytes == pool.full.size_bytes + pool.window.size_bytes
    assert len(pool.regions()) == 6
    side = pool.window
    view = pool.key(1).numpy()
    del pool, slots
    gc.collect()
    assert side.num_pages == 5 and view.shape == (20, 2, 4)
    with pytest.raises(pando.InvalidArgument, match="expected a WindowAllocator"):
        pando.WindowPool(geometry, 3, full_layers=[0], window_layers=[])  # type: ignore[arg-type]


def test_a_side_without_layers_is_none() -> None:
    slots = pando.WindowAllocator(64, 16, page_size=4)
    pool = pando.WindowPool(mha(), slots, full_layers=[], window_layers=[5])
    assert pool.full is None and pool.window is not None
    pool.set(5, [4], [np.zeros((1, 8), np.float32)] * 2)
    with pytest.raises(pando.InvalidArgument, match="no layer 0"):
        pool.key(0)
