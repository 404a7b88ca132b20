# SPDX-License-Identifier: Apache-2.0
"""OffloadTable through its binding. What it decides is tested in C++ (tests/offload)."""

from __future__ import annotations

import gc
import weakref

import pytest

import pando


def key(name: str, group: int = 0) -> bytes:
    return name.encode() + group.to_bytes(4, "big")


def test_keys_come_in_any_iterable() -> None:
    table = pando.OffloadTable(4)
    request = table.start()
    wanted, blocks, evicted = table.begin_write(request, (b"a", b"b"))
    assert (wanted, blocks.tolist(), evicted) == ([b"a", b"b"], [0, 1], [])
    assert blocks.dtype == "int32"
    assert sorted(table.end_write({b"a", b"b", b"x"})) == [b"a", b"b"]
    assert table.begin_read(request, iter([b"b"])).tolist() == [1]
    table.end_read({b"b": 1}.keys())
    table.check()


@pytest.mark.parametrize("keys", [[b"a", "b"], [None], 3, [bytearray(b"a")]])
def test_what_is_no_key_changes_nothing(keys: object) -> None:
    table = pando.OffloadTable(4)
    with pytest.raises((TypeError, pando.InvalidArgument), match="bytes|iterable"):
        table.begin_write(table.start(), keys)  # type: ignore[arg-type]
    assert table.num_keys == 0


def test_find_answers_in_the_words_of_the_caller() -> None:
    table = pando.OffloadTable(2, answers=("no", "soon", "yes"))
    request = table.start()
    assert table.find(b"a", "some context") == "no"
    table.begin_write(request, [b"a"])
    assert table.find(b"a") == "soon"
    table.end_write([b"a"])
    assert table.find(b"a") == "yes"
    assert pando.OffloadTable(1).find(b"a") is pando.OffloadState.absent


def test_groups_and_ends_decide_the_order() -> None:
    table = pando.OffloadTable(4, group_bytes=4)
    keys = [key("a"), key("b"), key("a", 1), key("b", 1)]
    ends = {key("a"): 10, key("a", 1): 10, key("b"): 20, key("b", 1): 20}
    request = table.start()
    table.begin_write(request, keys, ends)
    table.end_write(keys)
    table.finish(request)
    assert table.evictable_keys() == [key("b", 1), key("b"), key("a", 1), key("a")]


def test_no_room_is_none_and_the_rest_is_raised() -> None:
    table = pando.OffloadTable(1)
    request = table.start()
    assert table.begin_write(request, [b"a"]) is not None
    assert table.begin_write(request, [b"b"]) is None
    with pytest.raises(pando.OutOfCapacity, match="0 may be evicted"):
        table.evict(1)
    with pytest.raises(pando.NotFound, match="still being written"):
        table.begin_read(request, [b"a"])
    with pytest.raises(pando.InvalidArgument, match="is not being read"):
        table.end_read([b"a"])
    with pytest.raises(pando.InvalidArgument, match="another table's"):
        table.finish(pando.OffloadTable(1).start())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_blocks": 0}, "0 blocks"),
        ({"num_blocks": 1, "policy": "best"}, "best"),
        ({"num_blocks": 1, "block_tokens": 0}, "0 tokens"),
        ({"num_blocks": 1, "group_bytes": 5}, "group_bytes"),
        ({"num_blocks": 1, "answers": [1]}, "answers"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(pando.InvalidArgument, match=message):
        pando.OffloadTable(**options)  # type: ignore[arg-type]


def test_a_request_may_outlive_its_table() -> None:
    class Answer: ...

    answer = Answer()
    table = pando.OffloadTable(2, answers=(answer, answer, answer))
    request = table.start()
    table.begin_write(request, [b"a"])
    gone = weakref.ref(answer)
    answer.table = table  # type: ignore[attr-defined]
    del table, answer
    gc.collect()
    assert gone() is None
    del request
