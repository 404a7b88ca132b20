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


# Bound without the headers' comments so far (python/bindings/docs.h).
BOUND_BY_HAND = {
    *("BlockCache", "BlockCacheOptions", "BlockCacheStats", "BlockContent", "BlockGroup"),
    *("BlockHostOptions", "BlockPool", "BlockRequest", "CacheStats", "EngineSlots", "EvictResult"),
    *("Eviction", "HostTierOptions", "Inserted", "KeyPart", "Lease", "LoadBack", "LoadBackOptions"),
    *("Match", "NodeId", "OpenSession", "Pin", "PollResult", "PrefetchOptions", "Prefetch"),
    *("Inspector", "Paths", "Retention", "Tiers"),
    *("PrefixCache", "Request", "RetentionRange", "Session", "Sizes", "StateOptions"),
    *("StorageOptions", "StoreOptions", "TenantOptions", "TenantUsage", "TierPools", "TierStats"),
}
SIGNATURE = re.compile(r"(\d+\. ``)?\w*\(.*\)( -> .*)?(``)?")


def members_of(part: type) -> list[tuple[str, object]]:
    return [
        (name, value)
        for name, value in vars(part).items()
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    ]


def test_every_member_says_what_it_is() -> None:
    silent = []
    for name in public_names():
        part = getattr(pando, name)
        if not isinstance(part, type) or issubclass(part, (enum.Enum, Exception)):
            continue
        for member, value in members_of(part) if name not in BOUND_BY_HAND else []:
            # nanobind puts the signatures first.
            said = [line for line in (value.__doc__ or "").splitlines() if line.strip()]
            if all(SIGNATURE.fullmatch(line) for line in said):
                silent.append(f"{name}.{member}")
    assert not silent


def is_made_by_callers(part: type) -> bool:
    return "def __init__" in (getattr(part.__init__, "__nb_signature__", [["", ""]])[0][0] or "")


# Options and values show themselves in the examples of what takes or gives them.
SHOWN_ELSEWHERE = re.compile(
    r"(Stats|Options|Result|State|Outcome|Parts|Report|Faults|Pools|Region|Tag|StoredPage|RankOf)$"
)
# What cannot run on every machine.
NEED_HARDWARE_OR_SERVERS = {
    "make_cuda_arena",
    "make_cuda_copier",
    "make_numa_arena",
    "make_pinned_arena",
    "make_redis_store",
}


def test_what_users_call_has_an_example() -> None:
    missing = []
    for name in public_names():
        part = getattr(pando, name)
        if SHOWN_ELSEWHERE.search(name) or name in NEED_HARDWARE_OR_SERVERS or not callable(part):
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
