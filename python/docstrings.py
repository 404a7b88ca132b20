#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the docstrings of pando._core: the comments of the C++ headers, and what Python adds.

    docstrings.py --out FOLDER --parts FOLDER HEADER...

reads `///` and `///<` comments of the headers and the docstrings of the Python files in --parts,
and writes FOLDER/docstrings.h (every name, known to the compiler) and FOLDER/docstrings.cc (the
texts). python/bindings/docs.h looks names up; a name that is not there does not compile. A file
that would not change is not written, so that an edited comment compiles one file.

A part is a Python file in which a class or function has a docstring and nothing else. In it, a line
of `...` stands for the header's comment; without one the docstring replaces it, or is that of a
name that only Python has.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import pathlib
import re
import sys
import textwrap
from collections.abc import Sequence

from header_reader import Declaration, HeaderReader, InputError

WIDTH = 80

# ---- Text ----------------------------------------------------------------------------------------

# What C++ calls otherwise than Python. The names of errors are those of python/bindings/errors.cc.
ERRORS = {
    "invalid_argument": "InvalidArgument",
    "out_of_capacity": "OutOfCapacity",
    "stale_handle": "StaleHandle",
    "unavailable": "Unavailable",
    "in_use": "InUse",
    "corrupt": "Corrupt",
    "not_found": "NotFound",
    "io_error": "IoError",
    "timed_out": "TimedOut",
    "cancelled": "Cancelled",
}
WORDS = (
    (re.compile(r"\bErrorCode::(\w+)"), lambda found: ERRORS.get(found[1], found[1])),
    (re.compile(r"`(" + "|".join(ERRORS) + ")`"), lambda found: ERRORS[found[1]]),
    (re.compile(r"`true`"), lambda _: "True"),
    (re.compile(r"`false`"), lambda _: "False"),
    (re.compile(r"\b(?:std::nullopt|nullptr|SIZE_MAX)\b"), lambda _: "None"),
    (re.compile(r"\bstd::string(?:_view)?\b"), lambda _: "str"),
    (re.compile(r"\b(?:pando|std)::"), lambda _: ""),
    (re.compile(r"\bstops at a check\b"), lambda _: "raises BrokenContract"),
    (re.compile(r"(?<=\w)::(?=\w)"), lambda _: "."),
)


def to_python_words(text: str) -> str:
    for pattern, replace in WORDS:
        text = pattern.sub(replace, text)
    return text


def to_sentence(text: str) -> str:
    """A capital at the beginning, unless that is a name, and a full stop."""
    if re.match(r"[a-z]+(?!\w|[(.=]|::)", text):
        text = text[0].upper() + text[1:]
    return text if text.rstrip(")").endswith((".", "?", "!", ":")) else text + "."


def to_text(comment: Sequence[str]) -> str:
    """Lines of a comment as Python shows them: paragraphs and points of lists, wrapped again."""
    blocks: list[str] = []
    separate = True
    for line in comment:
        words = line.strip()
        if not words:
            separate = True
        elif separate or words.startswith("- "):
            blocks.append(("" if separate else "\0") + words)
            separate = False
        else:
            blocks[-1] += " " + words
    shown = ""
    for i, block in enumerate(blocks):
        follows = block.startswith("\0")
        block = to_python_words(block.lstrip("\0"))
        is_point = block.startswith("- ")
        if not is_point:
            block = to_sentence(block)
        wrapped = textwrap.fill(
            block,
            WIDTH,
            subsequent_indent="  " if is_point else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        shown += ("" if i == 0 else "\n" if follows else "\n\n") + wrapped
    return shown


def texts_of(declarations: Sequence[Declaration]) -> dict[str, str]:
    """By name, empty without a comment. Overloads that say different things say them in turn."""
    texts: dict[str, list[str]] = {}
    for declaration in declarations:
        said = texts.setdefault(declaration.name, [])
        text = to_text(declaration.comment)
        if text and text not in said:
            said.append(text)
    return {name: "\n\n".join(said) for name, said in texts.items()}


# ---- What Python adds ----------------------------------------------------------------------------


@dataclasses.dataclass
class Part:
    """A docstring of a file in --parts."""

    name: str
    path: pathlib.Path
    line: int
    text: str


def read_parts(path: pathlib.Path, source: str) -> list[Part]:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise InputError(path, error.lineno or 1, f"expected Python, {error.msg}") from None
    parts: list[Part] = []

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    parts.append(Part(prefix + node.name, path, node.lineno, text))
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{prefix}{node.name}::")
                elif not text:
                    raise InputError(path, node.lineno, f"expected a docstring of {node.name}")
            elif not isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)):
                raise InputError(path, node.lineno, "expected a class or function with a docstring")

    visit(tree.body, "")
    return parts


HEADERS_TEXT = re.compile(r"^\.\.\.$", re.MULTILINE)


def merge(texts: dict[str, str], parts: Sequence[Part]) -> dict[str, str]:
    """The headers' texts with the parts put in."""
    merged = dict(texts)
    seen: dict[str, Part] = {}
    for part in parts:
        if part.name in seen:
            before = f"{seen[part.name].path}:{seen[part.name].line}"
            raise InputError(part.path, part.line, f"{part.name} has a text at {before} already")
        seen[part.name] = part
        header = texts.get(part.name, "")
        prose, prompt, example = part.text.partition(">>>")  # `...` goes on with an example
        if HEADERS_TEXT.search(prose) and not header:
            message = f"expected a comment of {part.name} in a header, for its '...'"
            raise InputError(part.path, part.line, message)
        if header and not prose:
            message = f"expected '...' before the example of {part.name}, for its header's comment"
            raise InputError(part.path, part.line, message)
        prose = HEADERS_TEXT.sub(lambda _: header, prose, count=1)
        merged[part.name] = prose + prompt + example
    return merged


# ---- Output --------------------------------------------------------------------------------------

MADE = "// Made by python/docstrings.py of the headers' comments and of python/docstring_parts."


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return "\n    ".join(f'"{line}"' for line in escaped.replace("\n", "\\n\n").split("\n"))


def write_names(texts: dict[str, str]) -> str:
    rows = "\n".join(
        f'    {{"{name}", {"true" if text else "false"}}},' for name, text in sorted(texts.items())
    )
    return f"""{MADE}
#pragma once

#include <string_view>

namespace pando::python {{

struct DocName {{
  std::string_view name;
  bool has_text;
}};
/// Sorted.
inline constexpr DocName kDocNames[] = {{
{rows}
}};
/// In the same order.
extern const char* const kDocTexts[];

}}  // namespace pando::python
"""


def write_texts(texts: dict[str, str]) -> str:
    rows = "\n".join(f"    {quoted(text)}," for _, text in sorted(texts.items()))
    return f"""{MADE}
#include "docstrings.h"

namespace pando::python {{

const char* const kDocTexts[] = {{
{rows}
}};

}}  // namespace pando::python
"""


def write_if_changed(path: pathlib.Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def read_headers(paths: Sequence[pathlib.Path]) -> list[Declaration]:
    declarations: list[Declaration] = []
    for path in paths:
        declarations += HeaderReader(path, path.read_text(encoding="utf-8")).found
    return declarations


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Makes the docstrings of pando._core.")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the results")
    parser.add_argument("--parts", type=pathlib.Path, required=True, help="folder of Python files")
    parser.add_argument("headers", type=pathlib.Path, nargs="+")
    given = parser.parse_args(arguments)
    try:
        parts: list[Part] = []
        for path in sorted(given.parts.glob("*.py")):
            parts += read_parts(path, path.read_text(encoding="utf-8"))
        texts = merge(texts_of(read_headers(given.headers)), parts)
    except InputError as error:
        print(f"docstrings.py: {error}", file=sys.stderr)
        return 1
    write_if_changed(given.out / "docstrings.h", write_names(texts))
    write_if_changed(given.out / "docstrings.cc", write_texts(texts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
