# SPDX-License-Identifier: Apache-2.0
"""Requests that engines are given: the same ones for every engine that answers alike.

They depend on the seed and on what the engine answered, and on nothing else. sglang_child.py and
vllm_child.py say how their engine is asked, and add what only it can do.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any


class Steps:
    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.random = random.Random(5)
        self.requests: list[dict[str, Any]] = []
        self.talks: list[list[int]] = []
        self.system = self.words(100)
        self.notes: dict[str, Any] = {}

    def take(self, steps: list[tuple[str, dict[str, Any]]]) -> None:
        for name, keywords in steps:
            getattr(self, name)(**keywords)

    def note(self) -> None:
        """What else an engine can tell of itself, after the last step."""

    def generate(self, prompts: list[list[int]], new_tokens: int, ignore_eos: bool, **more: Any) -> Any:
        """For each prompt its length, how many of its tokens were cached, and the output."""
        raise NotImplementedError

    def ask(
        self,
        prompts: list[list[int]],
        new_tokens: int,
        step: str,
        ignore_eos: bool = True,
        **more: Any,
    ) -> list[list[int]]:
        """All prompts at once."""
        answers = self.generate(prompts, new_tokens, ignore_eos, **more)
        for prompt, cached, output in answers:
            self.requests.append(
                {"step": step, "prompt": prompt, "cached": cached, "output": output}
            )
        return [output for _, _, output in answers]

    def words(self, count: int) -> list[int]:
        return [self.random.randrange(10, 1000) for _ in range(count)]

    def converse(self, turns: int = 14, talks: int = 10) -> None:
        """Conversations that grow, one request after the other; together they do not fit."""
        self.begin_talks(talks)
        for _ in range(turns):
            talk = self.random.choice(self.talks)
            talk += self.words(self.random.randrange(3, 30))
            talk += self.ask([self.system + talk], 3, "converse")[0]

    def begin_talks(self, talks: int) -> None:
        while len(self.talks) < talks:
            self.talks.append(self.words(self.random.randrange(40, 200)))

    def crowd(self, rounds: int = 2, size: int = 8) -> None:
        """Prompts with common beginnings, all at once."""
        for _ in range(rounds):
            prompts = [
                self.system
                + self.random.choice(self.talks)[: self.random.randrange(10, 400)]
                + self.words(self.random.randrange(1, 40))
                for _ in range(size)
            ]
            self.ask(prompts, 6, "crowd")

    def overload(self, size: int = 8, prompt: int = 60, new_tokens: int = 150) -> None:
        """Answers that together are longer than the device has room for. They may end early, so an
        engine admits more of them than fit, and then has to retract or preempt one."""
        prompts = [self.words(prompt) for _ in range(size)]
        self.ask(prompts, new_tokens, "overload", ignore_eos=False)

    def adapters(self, names: list[str], rounds: int = 2) -> None:
        """The same prompt with each adapter and without: none may see another's KV."""
        prompt = self.words(120)
        for _ in range(rounds):
            for name in [*names, None]:
                self.ask([prompt], 4, f"adapter {name}", adapter=name)


def drive(kind: type[Steps], make: Callable[..., Any], version: str) -> Steps:
    """What a child does: reads its spec, starts the engine, takes the steps, writes what came of
    them. The engine still runs."""
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    began = time.monotonic()
    engine = make(**spec["arguments"])
    started = time.monotonic()
    steps = kind(engine)
    steps.take(spec["steps"])
    steps.note()
    write_result(sys.argv[2], steps, began, started, version=version)
    return steps


def write_result(path: str, steps: Steps, began: float, started: float, **more: Any) -> None:
    result = {
        "start_s": started - began,
        "steps_s": time.monotonic() - started,
        "requests": steps.requests,
        "notes": steps.notes,
    }
    with open(path, "w") as file:
        json.dump(result | more, file)
