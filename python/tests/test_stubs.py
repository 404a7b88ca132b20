# SPDX-License-Identifier: Apache-2.0
"""The type hints that are shipped: generated, complete, and true to a checker."""

import pathlib
import subprocess
import sys
import tempfile
import textwrap

import pando
import pytest

# Between the runs of one file of tests.
CACHE = ["--cache-dir", tempfile.mkdtemp(prefix="pando-mypy-")]
PACKAGE = pathlib.Path(pando.__file__).parent


def check_types(*arguments: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy", reason="mypy is not installed")
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *CACHE, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"MYPYPATH": str(PACKAGE.parent), "PATH": "/usr/bin:/bin"},
    )


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert (PACKAGE / "_core.pyi").exists()


def test_every_public_name_is_in_the_stub() -> None:
    stub = (PACKAGE / "_core.pyi").read_text()
    for name in dir(pando._core):
        if not name.startswith("_"):
            assert f"class {name}" in stub or f"def {name}" in stub or f"{name}:" in stub, name


def test_the_stub_has_no_holes() -> None:
    stub = (PACKAGE / "_core.pyi").read_text()
    for hole in ("pando::", "-> object:", "std::"):
        assert hole not in stub, next(line for line in stub.splitlines() if hole in line)


def test_the_stub_is_sound(tmp_path: pathlib.Path) -> None:
    done = check_types(str(PACKAGE / "_core.pyi"), str(PACKAGE / "protocols.py"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout


USE = """
    import numpy as np
    import pando

    class Mine:
        def key(self, stats: pando.NodeStats) -> int:
            return stats.last_access

    allocator = pando.PagedAllocator(1024, page_size=16)
    cache = pando.PrefixCache(allocator, policy=Mine(), events=True)
    with cache.paths.lock(cache.paths.match(np.arange(32, dtype=np.int32), ns="tenant")) as lease:
        reveal_type(lease)
    reveal_type(cache.paths.match([1, 2]).slots)
    reveal_type(cache.inspect.sizes().evictable)
    kept = pando.RetentionRange(end=16, priority=5, duration=60)
    with cache.retention.open_session(idle_after=30) as session:
        reveal_type(session)
        reveal_type(cache.start([1, 2], retention=[kept], session=session).found.length)
    reveal_type(cache.retention.pin([1], kind=pando.PinKind.soft, ttl=2.5).id)
    retention = pando.RetentionOptions(
        tenants=[pando.TenantOptions(name="acme", device_cap=None)], now=lambda: 0.0
    )
    pando.PrefixCache(allocator, policy=pando.HazardOptions(cost_aware=True), retention=retention)
"""


def test_a_checker_knows_what_calls_give(tmp_path: pathlib.Path) -> None:
    (tmp_path / "use.py").write_text(textwrap.dedent(USE))
    done = check_types("use.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    for known in (
        '"pando._core.Lease"',
        '"pando._core.OpenSession"',
        "dtype[numpy.signedinteger",
        '"int"',
    ):
        assert known in done.stdout.replace("builtins.int", "int"), done.stdout


MISTAKES = {
    "pando.PrefixCache(3)": "Argument 1",
    "pando.PagedAllocator(64, pagesize=16)": "pagesize",
    "pando.PagedAllocator(64).alloc('many')": "Argument 1",
    "pando.Sizes().evictible": "evictible",
    "pando.RetentionRange(begin='start')": "begin",
    "pando.PrefixCache(pando.PagedAllocator(64)).start([1], session='mine')": "session",
}


def test_a_checker_finds_mistakes(tmp_path: pathlib.Path) -> None:
    (tmp_path / "use.py").write_text("\n".join(["import pando", *MISTAKES]))
    done = check_types("use.py", cwd=tmp_path)
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(found) == len(MISTAKES), done.stdout
    for number, (line, error) in enumerate(MISTAKES.items(), start=2):
        assert any(f"use.py:{number}: " in said and error in said for said in found), line


def test_the_version_is_the_same_everywhere() -> None:
    root = pathlib.Path(__file__).parents[2]
    assert f'version = "{pando.__version__}"' in (root / "pyproject.toml").read_text()
    assert f"project(pando VERSION {pando.__version__} " in (root / "CMakeLists.txt").read_text()
