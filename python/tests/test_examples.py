# SPDX-License-Identifier: Apache-2.0
"""The example programs run; the one that exists in both languages says the same in both."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def test_engine_loop_is_the_same_in_both_languages() -> None:
    ours = output_of(sys.executable, str(EXAMPLES / "engine_loop.py"))
    assert "cleo   1200 of 1300 tokens from the cache" in ours
    program = pathlib.Path(os.environ.get("PANDO_BUILD", "")) / "examples" / "engine_loop"
    if not program.exists():
        pytest.skip("the C++ examples are not built here")
    assert ours == output_of(str(program))


def test_transformers_llama_gives_the_same_logits_with_reuse() -> None:
    for module in ("torch", "transformers"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    said = output_of(
        sys.executable, str(EXAMPLES / "transformers_llama.py"),
        "--prefix", "130", "--question", "21", "--prompts", "3",
    )
    lines = said.splitlines()
    assert "    0 of 151 tokens cached" in lines[0]
    assert "  128 of 151 tokens cached" in lines[2]
    assert "off by 1 %" in lines[3]
