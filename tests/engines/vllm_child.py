# SPDX-License-Identifier: Apache-2.0
"""One whole vLLM engine on the CPU, driven through a list of steps.

    python vllm_child.py SPEC.json RESULT.json

The spec: ``arguments`` of the engine and the ``steps`` to take (methods of :class:`VllmSteps`, with
their arguments). The result: for every request its prompt length, how many of its tokens were
cached, and what was generated; and vLLM's counters of caches and connectors.

Scheduler and worker run in this process, so that a step of the engine is a call and a test can end
the process between two of them. With VLLM_ENABLE_V1_MULTIPROCESSING=1 they run in another one,
which imports this module again: what is at its end happens in both.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from steps import Steps, drive, write_result

ENGINE = {
    "dtype": "float32",  # bfloat16 wants instructions that not every machine has
    "block_size": 32,  # what vLLM's attention for the CPU takes
    "enforce_eager": True,
    "enable_prefix_caching": True,
    "disable_log_stats": False,
    "max_num_seqs": 8,
    "seed": 3,
}
LEAVING = "vllm_child: the engine is asked to end"  # splits the log


class VllmSteps(Steps):
    """What can be done with an engine of vLLM beside asking it."""

    def note(self) -> None:
        self.notes["counters"] = counters(self.engine)

    def generate(
        self, prompts: list[list[int]], new_tokens: int, ignore_eos: bool
    ) -> list[tuple[int, int, list[int]]]:
        from vllm import SamplingParams

        answers = self.engine.generate(
            [{"prompt_token_ids": prompt} for prompt in prompts],
            SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=ignore_eos),
            use_tqdm=False,
        )
        return [
            (
                len(answer.prompt_token_ids),
                answer.num_cached_tokens,
                list(answer.outputs[0].token_ids),
            )
            for answer in answers
        ]

    def order(self, letters: str = "ABABABCABCADADBA", length: int = 3000) -> None:
        """Long prompts, prefilled in chunks, of which the host has room for one and a half."""
        prompts = {letter: self.words(length) for letter in sorted(set(letters))}
        for letter in letters:
            self.ask([prompts[letter]], 4, "order")

    def turns(self, turns: int = 4, new_tokens: int = 96) -> None:
        """One conversation with long answers, and others between that push it off the device."""
        talk = self.system + self.words(40)
        for _ in range(turns):
            talk += self.ask([talk], new_tokens, "turns")[0]
            talk += self.words(8)
            for _ in range(3):
                self.ask([self.words(420)], 2, "between turns")

    def reset(self) -> None:
        """Empties the device; what a connector has stays."""
        self.engine.reset_prefix_cache(reset_connector=False)

    def idle(self, seconds: float = 1.0) -> None:
        """The engine takes steps as it does between requests, so that transfers come to an end."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.engine.llm_engine.step()
            time.sleep(0.01)

    def crash(self, talks: int = 10, engine_steps: int = 3) -> None:
        """Begins every conversation at once, and is killed some steps later."""
        from vllm import SamplingParams

        self.begin_talks(talks)
        for number, talk in enumerate(self.talks):
            self.engine.llm_engine.add_request(
                f"killed-{number}",
                {"prompt_token_ids": self.system + talk},
                SamplingParams(temperature=0, max_tokens=64, ignore_eos=True),
            )
        for _ in range(engine_steps):
            self.engine.llm_engine.step()
        write_result(sys.argv[2], self, 0.0, 0.0)
        os.kill(os.getpid(), signal.SIGKILL)

    def say(self, path: str) -> None:
        """To another engine: this one has come so far."""
        Path(path).touch()

    def wait_for(self, path: str, limit_s: float = 120) -> None:
        deadline = time.monotonic() + limit_s
        while not Path(path).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {path} after {limit_s} s")
            self.idle(0.1)


def counters(engine: Any) -> dict[str, float]:
    """vLLM's counters whose names tell of caches or of connectors."""
    found: dict[str, float] = {}
    for metric in engine.get_metrics():
        if any(word in metric.name for word in ("prefix_cache", "kv_offload", "connector", "pando")):
            labels = [f"{k}={v}" for k, v in metric.labels.items() if k not in ("model_name", "engine")]
            value = getattr(metric, "value", None)
            if value is not None:
                found[" ".join([metric.name, *labels])] = value
    return found


def main() -> None:
    import vllm

    steps = drive(VllmSteps, lambda **more: vllm.LLM(**ENGINE | more), vllm.__version__)
    print(LEAVING, flush=True)
    steps.engine.llm_engine.engine_core.shutdown()


if __name__ in ("__main__", "__mp_main__"):
    import vllm_cpu_worker

    vllm_cpu_worker.install()
if __name__ == "__main__":
    main()
