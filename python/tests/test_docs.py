# SPDX-License-Identifier: Apache-2.0
"""Examples in docstrings and Python snippets in the documents run, and say what they say."""

import doctest
import enum
import inspect
import pathlib
import re
import types

import numpy as np
import pando
import pytest

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_examples(name: str, text: str) -> int:
    parsed = doctest.DocTestParser().get_doctest(
        text, {"pando": pando, "np": np}, name, None, None
    )
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report: list[str] = []
    runner.run(parsed, out=report.append)
    assert runner.failures == 0, "".join(report)
    return len(parsed.examples)


def public_names() -> list[str]:
    return [name for name in dir(pando) if not name.startswith("_") and name != "protocols"]


def documented() -> list[tuple[str, str]]:
    found = []
    for name in public_names():
        part = getattr(pando, name)
        if isinstance(part, types.ModuleType) or (
            isinstance(part, type) and issubclass(part, enum.Enum)
        ):
            continue
        found.append((name, inspect.getdoc(part) or ""))
        if isinstance(part, type):
            found += [
                (f"{name}.{member}", value.__doc__)
                for member, value in vars(part).items()
                if isinstance(getattr(value, "__doc__", None), str)
            ]
    return [(name, text) for name, text in found if ">>>" in text]


@pytest.mark.parametrize("name,text", documented(), ids=[name for name, _ in documented()])
def test_docstring(name: str, text: str) -> None:
    assert run_examples(name, text) > 0


def test_everything_public_says_what_it_is() -> None:
    for name in public_names():
        part = getattr(pando, name)
        assert inspect.getdoc(part), f"pando.{name} has no docstring"


def is_made_by_callers(part: type) -> bool:
    return "def __init__" in (getattr(part.__init__, "__nb_signature__", [["", ""]])[0][0] or "")


# Values, results and errors show themselves in the examples of what makes them.
SHOWN_ELSEWHERE = re.compile(
    r"(Stats|Options|Result|Error|State|Outcome|Kind|Order|Policy|Parts|Report|Faults)$"
)


def test_what_users_call_has_an_example() -> None:
    missing = []
    for name in public_names():
        part = getattr(pando, name)
        if isinstance(part, types.ModuleType) or SHOWN_ELSEWHERE.search(name):
            continue
        if isinstance(part, type) and (
            issubclass(part, (Exception, enum.Enum)) or not is_made_by_callers(part)
        ):
            continue
        if ">>>" not in (inspect.getdoc(part) or ""):
            missing.append(name)
    assert not missing


SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_snippets_of(path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snippets of one document run in order, in one namespace; doctest style, or plain code."""
    monkeypatch.chdir(tmp_path)
    scope = {"pando": pando, "np": np, "__name__": "__main__"}
    for snippet in SNIPPET.findall(path.read_text()):
        if snippet.startswith("# not run"):
            continue
        if ">>>" in snippet:
            run_examples(path.name, snippet)
        else:
            exec(compile(snippet, str(path), "exec"), scope)  # noqa: S102
