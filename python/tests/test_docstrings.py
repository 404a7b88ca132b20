# SPDX-License-Identifier: Apache-2.0
"""The docstrings' generator: what it reads, what it writes, and what it says of bad input."""

import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pando
import pytest

ROOT = pathlib.Path(__file__).parents[2]
HERE = pathlib.Path("some.h")


sys.path.insert(0, str(ROOT / "python"))
docstrings = importlib.import_module("docstrings")


def texts_of(header: str) -> dict[str, str]:
    return docstrings.texts_of(docstrings.HeaderReader(HERE, textwrap.dedent(header)).found)


# ---- Headers -------------------------------------------------------------------------------------


def test_reads_classes_members_and_functions() -> None:
    assert texts_of(
        """
        #pragma once
        #define TWICE(x) \\
          x x
        namespace pando {
        class Pool;
        /// Holds bytes,
        /// many of them.
        class [[nodiscard]] Pool final : public Base<int> {
         public:
          explicit Pool(std::size_t size) : size_(size), rest_{1, 2} {}
          ~Pool();
          Pool& operator=(const Pool&) = delete;
          friend bool operator<(const Pool&, const Pool&) = default;
          /// What fits.
          std::size_t size() const { return size_; }
          virtual Result<std::vector<int>> take(std::span<const int> n = {}) = 0;  ///< takes some

         private:
          /// Not for others.
          void grow();
          std::size_t size_ = 0;
        };
        /// Makes one.
        Result<std::unique_ptr<Pool>> make_pool(int n = f({1, 2}));
        template <typename T>
        T other(T value);
        }  // namespace pando
        """
    ) == {
        "Pool": "Holds bytes, many of them.",
        "Pool::Pool": "",
        "Pool::size": "What fits.",
        "Pool::take": "Takes some.",
        "make_pool": "Makes one.",
        "other": "",
    }


def test_reads_fields_before_and_behind() -> None:
    assert texts_of(
        """
        struct Options {
          /// Where they
          /// are.
          std::string path = "a;b";
          std::function<void(int, std::span<int>)> on_evict = {};  ///< told of each
          std::size_t low = 0, high{1};                            ///< between which
          std::array<int, 2> pair = {};
          long size = std::size_t{1} << 20;  ///< of one block,
                                             ///< in bytes
          struct Part {
            int n = 0;  ///< inner
          };
        };
        """
    ) == {
        "Options": "",
        "Options::path": "Where they are.",
        "Options::on_evict": "Told of each.",
        "Options::low": "Between which.",
        "Options::high": "Between which.",
        "Options::pair": "",
        "Options::size": "Of one block, in bytes.",
        "Options::Part": "",
        "Options::Part::n": "Inner.",
    }


def test_reads_enums() -> None:
    assert texts_of(
        """
        /// In which order.
        enum class Order : std::uint8_t {
          fifo,        ///< longest free first
          /// Lowest first.
          sorted = 3,
          last  ///< the last
        };
        enum class Plain { one, two };
        """
    ) == {
        "Order": "In which order.",
        "Order::fifo": "Longest free first.",
        "Order::sorted": "Lowest first.",
        "Order::last": "The last.",
        "Plain": "",
        "Plain::one": "",
        "Plain::two": "",
    }


def test_a_comment_belongs_to_one_declaration() -> None:
    found = texts_of("struct A {\n  /// Of x.\n  int x;\n  int y;\n};")
    assert found["A::x"] == "Of x." and found["A::y"] == ""


def test_overloads_say_different_things_in_turn() -> None:
    header = "/// One.\nint f(int);\n/// Two.\nint f(long);\n/// One.\nint f(char);\nint f();"
    assert texts_of(header) == {"f": "One.\n\nTwo."}


@pytest.mark.parametrize(
    "header,message",
    [
        ("struct A {\n  int x;\n", "some.h:3: expected '}', got 'the end of the file'"),
        ("struct A {\n  /// Lost.\n};", "some.h:2: expected a declaration after this ///"),
        ("namespace a {\n///< Lost.\n}", "some.h:2: expected a declaration before this ///<"),
        ("int f(\n", "some.h:2: expected ')' for the '(' of line 1, got 'the end of the file'"),
        ("\nint x\n/// Of y.\nint y;", "some.h:3: expected ';' of the declaration of line 2"),
        ("enum class E {\n  1 };", "some.h:2: expected a value of E, got '1'"),
        ("struct A {} a;", "some.h:1: expected ';' after A, got 'a'"),
        ("class {\n};", "some.h:1: expected a name, got '{'"),
        ("int x; }", "some.h:1: expected a declaration, got '}'"),
        ("struct A { private int x; };", "some.h:1: expected ':' after private, got 'int'"),
    ],
)
def test_bad_headers_are_refused_with_their_place(header: str, message: str) -> None:
    with pytest.raises(docstrings.InputError) as refused:
        texts_of(header)
    assert message in str(refused.value)


# ---- Text ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "comment,text",
    [
        ("pages that are free", "Pages that are free."),
        ("see KvPool::save()", "See KvPool.save()."),
        ("`std::nullopt` when none is free.", "`None` when none is free."),
        ("a nullptr, or SIZE_MAX", "A None, or None."),
        ("`out_of_capacity`: there is no room", "OutOfCapacity: there is no room."),
        ("ErrorCode::in_use while it is held", "InUse while it is held."),
        ("what is free stops at a check", "What is free raises BrokenContract."),
        ("a std::string_view", "A str."),
        ("`true` if so", "True if so."),
        ("alloc() gives pages", "alloc() gives pages."),
        ("backed_up -> loading", "backed_up -> loading."),
        ("stored: in order", "Stored: in order."),
        ("(see there.)", "(see there.)"),
        ("0: no limit", "0: no limit."),
    ],
)
def test_words_are_those_of_python(comment: str, text: str) -> None:
    assert docstrings.to_text([comment]) == text


def test_errors_have_the_names_of_exceptions() -> None:
    codes = docstrings.read_headers([ROOT / "include" / "pando" / "result.h"])
    names = [code.name for code in codes if code.name.startswith("ErrorCode::")]
    assert [name.split("::")[1] for name in names] == list(docstrings.ERRORS)
    for name in docstrings.ERRORS.values():
        assert issubclass(getattr(pando, name), pando.Error)


def test_paragraphs_and_lists_stay() -> None:
    points = ["- a call, " + "which is long " * 6, "- a fact"]
    assert docstrings.to_text(["Two kinds", "of news:", *points, "", "Not more."]).splitlines() == [
        "Two kinds of news:",
        "- a call, which is long which is long which is long which is long which is long",
        "  which is long",
        "- a fact",
        "",
        "Not more.",
    ]


# ---- What Python adds ----------------------------------------------------------------------------


def merged(parts: str, **texts: str) -> dict[str, str]:
    read = docstrings.read_parts(pathlib.Path("part.py"), textwrap.dedent(parts))
    return docstrings.merge({name.replace("__", "::"): text for name, text in texts.items()}, read)


def test_parts_add_replace_and_bring_their_own() -> None:
    found = merged(
        '''
        """A file."""
        import pando

        class Pool:
            """...

            >>> 1 + 1
            2
            """

            def size(self):
                """In pages."""

            def close(self):
                """Only in Python."""

        def make_pool():
            """First this.

            ...
            """
        ''',
        Pool="Holds bytes.",
        Pool__size="What fits.",
        make_pool="Makes one.",
    )
    assert found == {
        "Pool": "Holds bytes.\n\n>>> 1 + 1\n2",
        "Pool::size": "In pages.",
        "Pool::close": "Only in Python.",
        "make_pool": "First this.\n\nMakes one.",
    }


def test_dots_of_an_example_are_its_own() -> None:
    part = 'def f():\n  """...\n\n  >>> for i in ():\n  ...     pass\n  ...\n  """'
    assert merged(part, f="Said.") == {"f": "Said.\n\n>>> for i in ():\n...     pass\n..."}


@pytest.mark.parametrize(
    "parts,message",
    [
        ("def f(:", "part.py:1: expected Python"),
        ("\nx = 1", "part.py:2: expected a class or function with a docstring"),
        ("class A:\n    def f(self): pass", "part.py:2: expected a docstring of f"),
        ('def g():\n  """..."""', "part.py:1: expected a comment of g in a header, for its '...'"),
        ('def f():\n  """>>> 1"""', "part.py:1: expected '...' before the example of f"),
        ('def f():\n  """A"""\ndef f():\n  """B"""', "part.py:3: f has a text at part.py:1"),
    ],
)
def test_bad_parts_are_refused_with_their_place(parts: str, message: str) -> None:
    with pytest.raises(docstrings.InputError) as refused:
        merged(parts, f="Said.")
    assert message in str(refused.value)


def look_up(name: str) -> object:
    found: object = pando
    for word in name.split("::"):
        found = vars(found).get(word, vars(found).get("_" + word)) if found is not None else None
    return found


# What a build without libzmq, hiredis or the metrics' library does not have.
OPTIONAL = {"Metrics", "EventPublisher", "make_redis_store"}


def test_every_part_is_in_a_docstring() -> None:
    """A part whose name is mistyped would be read and never shown."""
    for path in sorted((ROOT / "python" / "docstring_parts").glob("*.py")):
        for part in docstrings.read_parts(path, path.read_text()):
            owner = part.name.split("::")[0]
            if owner in OPTIONAL and not hasattr(pando, owner):
                continue
            found = look_up(part.name) or getattr(pando._core, "_" + part.name, None)
            assert found is not None, f"{path}:{part.line}: pando has no {part.name}"
            shown = " ".join((found.__doc__ or "").split())
            for piece in part.text.split("..."):
                assert " ".join(piece.split()) in shown, f"{path}:{part.line}: {part.name}"


# ---- The command, and the compiler ---------------------------------------------------------------


def run_generator(tmp_path: pathlib.Path, header: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "parts").mkdir(exist_ok=True)
    (tmp_path / "some.h").write_text(header)
    return subprocess.run(
        [
            sys.executable,
            str(ROOT / "python" / "docstrings.py"),
            *("--out", str(tmp_path / "out"), "--parts", str(tmp_path / "parts")),
            str(tmp_path / "some.h"),
        ],
        capture_output=True,
        text=True,
    )


def test_a_file_that_would_not_change_is_not_written(tmp_path: pathlib.Path) -> None:
    names, texts = tmp_path / "out" / "docstrings.h", tmp_path / "out" / "docstrings.cc"
    assert run_generator(tmp_path, '/// Says "one\\two".\nint f();').returncode == 0
    assert '"Says \\"one\\\\two\\"."' in texts.read_text()
    for path in (names, texts):
        os.utime(path, (0, 0))
    assert run_generator(tmp_path, "/// Says two.\nint f();").returncode == 0
    assert names.stat().st_mtime == 0 and texts.stat().st_mtime > 0


def test_the_command_says_what_is_wrong_and_fails(tmp_path: pathlib.Path) -> None:
    done = run_generator(tmp_path, "struct A {")
    assert done.returncode == 1
    assert "some.h:1: expected '}'" in done.stderr
    assert not (tmp_path / "out").exists()


PROGRAM = """
#include "doc_names.h"
namespace pando {{
class Pool {{}};
enum class Kind {{ one }};
namespace python {{
struct PyPool {{}};
const char* use() {{ return {use}; }}
}}
}}
"""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize(
    "use,error",
    [
        ('Member<PyPool>("size").text()', ""),
        ('Name("make_pool").text()', ""),
        ("doc_of<Pool>()", ""),
        ('Value<Kind>("one").text()', ""),
        ('Member<Pool>("sise").text()', "no_header_has_this_name"),
        ('Member<Pool>("plain").text()', "this_name_has_no_comment"),
        ('Value<Kind>("two").name', "no_header_has_this_name"),
        ('Name("make_pol").text()', "no_header_has_this_name"),
    ],
)
def test_names_are_checked_by_the_compiler(
    tmp_path: pathlib.Path, compiler: str, use: str, error: str
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    header = """
        /// A pool.
        class Pool {
         public:
          int size();  ///< of it
          int plain();
        };
        enum class Kind { one };
        /// Makes one.
        Pool make_pool();
    """
    assert run_generator(tmp_path, header).returncode == 0
    (tmp_path / "use.cc").write_text(PROGRAM.format(use=use))
    done = subprocess.run(
        [
            *(compiler, "-std=c++20", "-fsyntax-only", "use.cc"),
            *("-I", str(tmp_path / "out"), "-I", str(ROOT / "python" / "bindings")),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    if error:
        wrong = use.split('"')[1]
        assert done.returncode != 0 and error in done.stderr and wrong in done.stderr, done.stderr
    else:
        assert done.returncode == 0, done.stderr
