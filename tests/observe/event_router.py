#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A router as the tests of the event publisher need it: a real subscriber in Python.

It keeps what the events say is cached, sees gaps in the sequence numbers, asks the replay socket
for what it missed, and for a snapshot where that has it no more. The test tells it what to do, a
line at a time, and reads a line of JSON for each.
  snapshot        ask for one and take it over
  until N         take part until batch N - 1 has been applied; tell state and counts
  record N        the same, and tell every batch as it was decoded
  lose K          throw away the next K live batches
  connect         subscribe now
  raw HEX         send this to the replay socket and tell the number of batches before the end
"""
import json
import sys

import msgpack
import zmq

dialect, endpoint, replay_endpoint, topic = sys.argv[1:5]
END = 2**64 - 1


def plain(value):
    """Bytes as text for JSON."""
    if isinstance(value, bytes):
        return "hex:" + value.hex()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


class Router:
    def __init__(self):
        self.context = zmq.Context()
        self.live = self.context.socket(zmq.SUB)
        self.live.setsockopt(zmq.RCVHWM, 0)
        self.asker = self.context.socket(zmq.DEALER)
        self.asker.connect(replay_endpoint)
        self.blocks = {}  # (medium, hash) -> what was told of it
        self.next = 0
        self.to_lose = 0
        self.recorded = []
        self.counts = {"gaps": 0, "replays": 0, "snapshots": 0, "orphans": 0, "lost": 0}

    def connect(self):
        self.live.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self.live.connect(endpoint)
        return {}

    def ask(self, request):
        """All replies up to the end marker, as (sequence, payload)."""
        self.asker.send_multipart([b"", request])
        replies = []
        while True:
            assert self.asker.poll(20000), "no answer"
            empty, number, payload = self.asker.recv_multipart()
            assert empty == b"" and len(number) == 8
            number = int.from_bytes(number, "big")
            if number == END:
                assert payload == b""
                return replies
            replies.append((number, payload))

    def snapshot(self):
        replies = self.ask(b"pando-snapshot-v1")
        assert replies, "a snapshot has one batch at least"
        for number, payload in replies:
            assert number == replies[0][0]
            self.apply(payload)
        self.next = replies[0][0]
        self.counts["snapshots"] += 1
        return {"next": self.next, "batches": len(replies)}

    def replay(self):
        self.counts["replays"] += 1
        for number, payload in self.ask(self.next.to_bytes(8, "big")):
            if number != self.next:  # the buffer has it no more
                self.snapshot()
                return
            self.apply(payload)
            self.next += 1

    def apply(self, payload):
        timestamp, events, rank = msgpack.unpackb(payload, raw=False)
        assert isinstance(timestamp, float) and timestamp > 1.7e9
        self.recorded.append({"events": plain(events), "rank": rank})
        for event in events:
            self.apply_event(event)

    def apply_event(self, event):
        if dialect == "vllm":
            kind, get = event["type"], event.get
        else:
            kind = event[0]
            names = {
                "BlockStored": ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id",
                                "medium", "extra"],
                "BlockRemoved": ["block_hashes", "medium"],
                "AllBlocksCleared": [],
            }[kind]
            get = dict(zip(names, event[1:])).get
        if kind == "AllBlocksCleared":
            self.blocks.clear()
        elif kind == "BlockRemoved":
            for block in get("block_hashes"):
                self.blocks.pop((get("medium"), block), None)
        else:
            self.store(get)

    def store(self, get):
        size, parent, medium = get("block_size"), get("parent_block_hash"), get("medium")
        if parent is not None and (medium, parent) not in self.blocks:
            self.counts["orphans"] += 1
        for i, block in enumerate(get("block_hashes")):
            tokens = get("token_ids")[i * size : (i + 1) * size]
            assert len(tokens) == size
            self.blocks[(medium, block)] = [parent, tokens]
            parent = block

    def until(self, end):
        while self.next < end:
            if not self.live.poll(50):
                self.replay()  # nothing comes: perhaps we were not connected yet
                continue
            name, number, payload = self.live.recv_multipart()
            assert name == topic.encode() and len(number) == 8
            if self.to_lose > 0:
                self.to_lose -= 1
                self.counts["lost"] += 1
                continue
            number = int.from_bytes(number, "big")
            if number < self.next:
                continue
            if number > self.next:
                self.counts["gaps"] += 1
                self.replay()
            if number == self.next:
                self.apply(payload)
                self.next += 1
        state = sorted([m, h, v[0], v[1]] for (m, h), v in self.blocks.items())
        return {"state": state, "next": self.next, **self.counts}


def main():
    router = Router()
    for line in sys.stdin:
        command, *args = line.split()
        if command == "connect":
            reply = router.connect()
        elif command == "snapshot":
            reply = router.snapshot()
        elif command == "lose":
            router.to_lose = int(args[0])
            reply = {}
        elif command == "until":
            reply = router.until(int(args[0]))
        elif command == "record":
            router.recorded = []
            reply = router.until(int(args[0]))
            reply["batches"] = router.recorded
        elif command == "raw":
            reply = {"batches": len(router.ask(bytes.fromhex(args[0])))}
        print(json.dumps(reply), flush=True)
    router.context.destroy(linger=0)


main()
