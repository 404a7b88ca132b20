# SPDX-License-Identifier: Apache-2.0
"""Hashes, KV events, and a real subscriber of the publisher."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pando

needs_publisher = pytest.mark.skipif(
    not hasattr(pando, "EventPublisher"), reason="built without events"
)


def test_check_value_of_the_chain() -> None:
    (page,) = pando.hash_pages([1, 2, 3, 4], 4)
    assert page == hashlib.sha256(np.array([1, 2, 3, 4], "<u4").tobytes()).digest()
    assert pando.block_id(page) == -3488128144981237669


@given(
    st.lists(st.integers(0, 2**31 - 1), max_size=30), st.integers(1, 6), st.text(max_size=6)
)
def test_bigram_chains_and_namespaces(tokens: list[int], size: int, ns: str) -> None:
    start = pando.chain_start(ns)
    assert (start is None) == (ns == "")
    chain, parent = [], start or b""
    units = list(zip(tokens, tokens[1:]))
    for at in range(0, len(units) - size + 1, size):
        words = np.array(units[at : at + size], "<u4").tobytes()
        parent = hashlib.sha256(parent + words).digest()
        chain.append(parent)
    assert pando.hash_pages(tokens, size, bigram=True, parent=start) == chain


def test_hashes_refuse_what_makes_no_sense() -> None:
    with pytest.raises(pando.InvalidArgument):
        pando.hash_pages([1, -1], 1)
    with pytest.raises(pando.InvalidArgument, match="parent: expected bytes"):
        pando.hash_pages([1], 1, parent="x")  # type: ignore[arg-type]
    with pytest.raises(pando.InvalidArgument, match="1 to 32 bytes"):
        pando.block_id(b"")
    with pytest.raises(pando.InvalidArgument, match="1 to 32 bytes"):
        pando.block_id(bytes(33))


def stored(tokens: list[int], **more: Any) -> Any:
    return pando.KvEvent(
        kind=pando.KvEventKind.stored,
        hashes=pando.hash_pages(tokens, 2),
        tokens=tokens,
        block_size=2,
        **more,
    )


def test_an_event_is_what_it_was_made_of() -> None:
    extra = [["lora", pando.ItemKey(id="i", offset=-1)], [bytes(32)]]
    parent = pando.hash_pages([9, 9], 2)[0]
    event = stored([1, 2, 3, 4], parent=parent, ns="t", group=3, extra_keys=extra)
    assert event.tier == pando.Tier.device and event.parent == parent
    assert event.tokens.dtype == np.int32 and event.tokens.tolist() == [1, 2, 3, 4]
    assert event.ns == b"t" and event.group == 3 and event.extra_keys == extra
    same = stored([1, 2, 3, 4], parent=parent, ns=b"t", group=3, extra_keys=extra)
    assert event == same and event != stored([1, 2, 3, 4]) and event != 3
    short = pando.KvEvent(hashes=[bytes(range(16))])
    assert short.hash_bytes == 16 and short.hashes == [bytes(range(16))]
    with pytest.raises(TypeError, match="unhashable"):
        hash(event)
    with pytest.raises(pando.InvalidArgument, match="one length"):
        pando.KvEvent(hashes=[bytes(16), bytes(32)])
    with pytest.raises(pando.InvalidArgument, match="str, ItemKey or bytes"):
        pando.KvEvent(extra_keys=[[3]])  # type: ignore[list-item]
    assert "KvEvent(kind=" in repr(event)


# ---- Publishing ---------------------------------------------------------------------------------

SUBSCRIBER = r"""
import json, sys, msgpack, zmq
endpoint, replay = sys.argv[1:]
context = zmq.Context()
live = context.socket(zmq.SUB)
live.setsockopt(zmq.SUBSCRIBE, b"kv")
live.connect(endpoint)
def tell(what, number, batch):
    events = msgpack.unpackb(batch, raw=False)[1:] if batch else None
    print(json.dumps([what, number, events], default=lambda b: b.hex()), flush=True)
    return events
while live.poll(15000):
    topic, number, batch = live.recv_multipart()
    if "[7, 8]" in str(tell("live", int.from_bytes(number, "big"), batch)):
        break
asking = context.socket(zmq.DEALER)
asking.connect(replay)
for what, request in (("replay", bytes(8)), ("snapshot", b"pando-snapshot-v1")):
    asking.send(request)
    while asking.poll(15000):
        number, batch = asking.recv_multipart()[-2:]
        tell(what, int.from_bytes(number, "big", signed=True), batch)
        if number == b"\xff" * 8:
            break
"""


def subscriber_python() -> str:
    python = os.environ.get("PANDO_ZMQ_PYTHON", "/usr/bin/python3")
    try:
        subprocess.run([python, "-c", "import zmq, msgpack"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"{python} has no zmq and msgpack")
    return python


@needs_publisher
@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_a_subscriber_hears_of_a_cache(dialect: str) -> None:
    python = subscriber_python()
    cache = pando.BlockCache(
        20, groups=[pando.BlockGroup(block_size=2)], events=True, hash="sglang"
    )
    publisher = pando.EventPublisher(
        dialect=getattr(pando.EventDialect, dialect), topic="kv", data_parallel_rank=0
    )
    process = subprocess.Popen(
        [python, "-c", SUBSCRIBER, publisher.endpoint, publisher.replay_endpoint],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        heard = threading.Event()
        lines: list[list[Any]] = []

        def listen() -> None:
            for line in process.stdout or ():
                lines.append(json.loads(line))
                heard.set()

        listener = threading.Thread(target=listen)
        listener.start()
        cleared = pando.KvEvent(kind=pando.KvEventKind.cleared)
        deadline = time.monotonic() + 15
        while not heard.wait(0.02) and time.monotonic() < deadline:  # until it has subscribed
            assert publisher.publish([cleared])
        assert heard.is_set()
        request = cache.start([1, 2, 3, 4, 5])
        cache.allocate(request, 5)
        cache.checkpoint(request, 5)
        assert publisher.publish(cache.take_events())
        assert not cache.take_events()
        assert publisher.publish([stored([7, 8], ns="l1:a")])
        publisher.flush()
        listener.join(20)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def is_stored(event: Any, tokens: list[int]) -> bool:
        if dialect == "sglang":
            return bool(event[0] == "BlockStored" and event[3] == tokens)
        return bool(event["type"] == "BlockStored" and event["token_ids"] == tokens)

    stats = publisher.stats
    live = [line for line in lines if line[0] == "live"]
    event = live[-2][2][0][0]
    assert is_stored(event, [1, 2, 3, 4])
    hashes = event[1] if dialect == "sglang" else event["block_hashes"]
    pages = pando.hash_pages([1, 2, 3, 4], 2)
    if dialect == "sglang":
        assert hashes == [pando.block_id(page) for page in pages]
    else:
        assert hashes == [int.from_bytes(page[-8:], "big") for page in pages]
    assert live[-1][1] == live[-2][1] + 1 == stats.next_sequence - 1
    replayed = [line for line in lines if line[0] == "replay"]
    assert [line[1] for line in replayed] == [*range(stats.next_sequence), -1]
    snapshot = [line for line in lines if line[0] == "snapshot"]
    told = [event for line in snapshot if line[2] for event in line[2][0]]
    assert any(is_stored(event, [1, 2, 3, 4]) for event in told)
    assert stats.replays == 1 and stats.snapshots == 1 and stats.mirrored_blocks == 3


@needs_publisher
def test_publisher_options_and_refusals() -> None:
    options = pando.EventPublisherOptions(topic="x", replay_endpoint="", snapshots=False)
    publisher = pando.EventPublisher(options)
    assert publisher.replay_endpoint == "" and publisher.endpoint.startswith("tcp://127.0.0.1:")
    assert publisher.publish([]) and publisher.stats.next_sequence == 0
    publisher.restate([stored([1, 2])])
    publisher.flush()
    assert publisher.stats.published_events >= 1
    with pytest.raises(pando.InvalidArgument, match="KvEvent"):
        publisher.publish([1])  # type: ignore[list-item]
    with pytest.raises(pando.Error):
        pando.EventPublisher(endpoint="tcp://256.0.0.1:x")
    with pytest.raises(pando.Error):
        pando.EventPublisher(endpoint=publisher.endpoint)  # taken
    with pytest.raises(TypeError, match="no option"):
        pando.EventPublisher(port=3)  # type: ignore[call-overload]
    assert pando.SNAPSHOT_REQUEST == b"pando-snapshot-v1"
