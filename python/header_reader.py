# SPDX-License-Identifier: Apache-2.0
"""Reads what our C++ headers declare, with the `///` and `///<` comments of each name.

This reads our headers, not C++ in general: it knows namespaces, classes, structs, enums, members,
functions and `using`, skips what is private, and stops with file and line at what it cannot read.
python/docstrings.py makes docstrings of it.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterator, Sequence


class InputError(Exception):
    """What is wrong with an input, as `file:line: expected ...`."""

    def __init__(self, path: pathlib.Path, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}")


# ---- Tokens of a header --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Token:
    kind: str  # after, before, name, symbol, number, string, end
    text: str
    line: int


TOKEN = re.compile(
    r"""
    (?P<directive>^[ \t]*\#(?:[^\n\\]|\\.)*)   # with continued lines
  | ///<(?P<after>[^\n]*)
  | ///(?P<before>[^\n]*)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<number>\d[\w'.]*)
  | (?P<name>~?[A-Za-z_]\w*)
  | (?P<symbol>::|->|\S)
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)


def tokenize(text: str) -> Iterator[Token]:
    line, at = 1, 0
    for found in TOKEN.finditer(text):
        line += text.count("\n", at, found.start())
        at = found.start()
        kind = found.lastgroup or ""
        if kind not in ("directive", "comment"):
            yield Token(kind, found.group(kind), line)
    yield Token("end", "the end of the file", line + text.count("\n", at))


# ---- Declarations of a header --------------------------------------------------------------------


@dataclasses.dataclass
class Declaration:
    """A name of a header, and the lines of its comment."""

    name: str
    path: pathlib.Path
    line: int
    comment: list[str] = dataclasses.field(default_factory=list)


CLOSING = {"(": ")", "{": "}", "[": "]", "<": ">"}


class HeaderReader:
    """Reads one header into `found`, in order. Overloads are declarations of the same name."""

    def __init__(self, path: pathlib.Path, text: str) -> None:
        self.found: list[Declaration] = []
        self._path = path
        self._tokens = list(tokenize(text))
        self._at = 0
        self._before: list[Token] = []  # `///` lines that wait for their declaration
        self._last: list[Declaration] = []  # what `///<` speaks of
        self._read_scope(prefix="", public=True, until="end")

    # -- moving on

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def _fail(self, expected: str, token: Token | None = None) -> InputError:
        token = token or self._next
        message = f"expected {expected}, got {token.text.strip()!r}"
        return InputError(self._path, token.line, message)

    def _expect(self, text: str, where: str) -> None:
        if self._next.text != text or self._next.kind != "symbol":
            raise self._fail(f"{text!r} {where}")
        self._take()

    def _is_symbol(self, text: str) -> bool:
        return self._next.kind == "symbol" and self._next.text == text

    def _skip_group(self) -> None:
        """From an opening bracket to behind the one that closes it."""
        opening = self._take()
        closing = CLOSING[opening.text]
        inner = "({[<" if opening.text == "<" else "({["
        while not self._is_symbol(closing):
            if self._next.kind == "end":
                raise self._fail(f"{closing!r} for the {opening.text!r} of line {opening.line}")
            if self._next.kind == "symbol" and self._next.text in inner:
                self._skip_group()
            else:
                self._take()
        self._take()

    # -- comments

    def _declare(self, names: Sequence[str], prefix: str, line: int, public: bool) -> None:
        comment = [token.text for token in self._before]
        self._before = []
        self._last = [Declaration(prefix + name, self._path, line, list(comment)) for name in names]
        if public:
            self.found += self._last

    def _take_comment(self) -> None:
        token = self._take()
        if token.kind == "before":
            self._before.append(token)
            self._last = []
            return
        if not self._last:
            raise InputError(self._path, token.line, "expected a declaration before this ///<")
        for declaration in self._last:
            declaration.comment.append(token.text)

    def _refuse_comment(self) -> None:
        if self._before:
            line = self._before[-1].line
            raise InputError(self._path, line, "expected a declaration after this ///")

    # -- scopes

    def _read_scope(self, prefix: str, public: bool, until: str) -> None:
        while True:
            token = self._next
            if token.kind in ("before", "after"):
                self._take_comment()
            elif token.kind == "end" or self._is_symbol("}"):
                self._refuse_comment()
                if (token.kind == "end") != (until == "end"):
                    raise self._fail("'}'" if until == "}" else "a declaration")
                return
            elif token.text in ("public", "protected", "private"):
                self._take()
                self._expect(":", f"after {token.text}")
                public = token.text == "public"
            elif token.text == "namespace":
                self._read_namespace(prefix)
            elif token.text == "template":
                self._take()
                self._skip_group()
            elif token.text == "enum":
                self._read_enum(prefix, public)
            elif token.text in ("class", "struct"):
                self._read_class(prefix, public)
            elif token.text in ("friend", "static_assert"):
                self._read_declaration()
                self._before, self._last = [], []
            elif token.text == "using":
                self._read_alias(prefix, public)
            else:
                line = token.line
                self._declare(self._read_declaration(), prefix, line, public)

    def _read_namespace(self, prefix: str) -> None:
        self._refuse_comment()
        self._take()
        while self._next.kind == "name" or self._is_symbol("::"):
            self._take()
        self._expect("{", "of a namespace")
        self._read_scope(prefix, public=True, until="}")
        self._take()

    def _read_head(self) -> str:
        """`class [[nodiscard]] Name final : public Base`, up to its brace or semicolon."""
        self._take()
        if self._next.text in ("class", "struct"):
            self._take()
        while self._is_symbol("["):
            self._skip_group()
        if self._next.kind != "name":
            raise self._fail("a name")
        name = self._take().text
        while not (self._is_symbol("{") or self._is_symbol(";")):
            if self._next.kind == "end":
                raise self._fail(f"'{{' of {name}")
            if self._is_symbol("<"):
                self._skip_group()
            else:
                self._take()
        return name

    def _read_class(self, prefix: str, public: bool) -> None:
        line, is_struct = self._next.line, self._next.text == "struct"
        name = self._read_head()
        if self._is_symbol(";"):  # declared here, defined elsewhere
            self._take()
            self._before, self._last = [], []
            return
        self._declare([name], prefix, line, public)
        self._take()
        # What is inside of something private is private too.
        kept = len(self.found)
        self._read_scope(f"{prefix}{name}::", is_struct, until="}")
        if not public:
            del self.found[kept:]
        self._take()
        self._expect(";", f"after {name}")
        self._last = []

    def _read_enum(self, prefix: str, public: bool) -> None:
        line = self._next.line
        name = self._read_head()
        if self._is_symbol(";"):
            self._take()
            self._before, self._last = [], []
            return
        self._declare([name], prefix, line, public)
        self._take()
        self._last = []
        while not self._is_symbol("}"):
            if self._next.kind in ("before", "after"):
                self._take_comment()
                continue
            if self._next.kind != "name":
                raise self._fail(f"a value of {name}")
            value = self._take()
            self._declare([value.text], f"{prefix}{name}::", value.line, public)
            while not (self._is_symbol(",") or self._is_symbol("}")):
                if self._next.kind in ("before", "after"):
                    break
                if self._next.kind == "end":
                    raise self._fail(f"'}}' of {name}")
                self._take()
            if self._is_symbol(","):
                self._take()
        self._refuse_comment()
        self._take()
        self._expect(";", f"after {name}")
        self._last = []

    def _read_alias(self, prefix: str, public: bool) -> None:
        line = self._take().line
        name = self._next.text
        while not self._is_symbol(";"):
            if self._next.kind == "end":
                raise self._fail("';' after using")
            self._take()
        self._take()
        self._declare([name], prefix, line, public)

    def _read_declaration(self) -> list[str]:
        """A function with its body or semicolon, or variables. The names; none for operators."""
        start = self._next
        names: list[str] = []
        last = ""  # the name that was read last
        is_operator = is_function = in_value = False
        while self._is_symbol("["):  # attributes
            self._skip_group()
        while not self._is_symbol(";"):
            token = self._next
            if token.kind in ("end", "before", "after") or self._is_symbol("}"):
                raise self._fail(f"';' of the declaration of line {start.line}")
            if token.kind == "name":
                last = self._take().text
                is_operator |= last == "operator"
                while last == "operator" and self._next.text not in ("(", "bool"):
                    self._take()
            elif token.text == "(" and not in_value:
                names = names or [last]
                is_function = True
                self._skip_group()
            elif is_function and token.text == ":":
                self._skip_initializers()
            elif is_function and token.text == "{":
                self._skip_group()
                break
            elif token.text == "," and not is_function:
                if not in_value:
                    names.append(last)
                in_value = False
                self._take()
            elif token.text in ("=", "{", "[") and not is_function and not in_value:
                names.append(last)
                in_value = True
                if token.text == "=":
                    self._take()
                else:
                    self._skip_group()
            elif token.text in CLOSING and not (token.text == "<" and in_value):
                self._skip_group()
            else:
                self._take()
        else:
            if not is_function and not in_value:
                names.append(last)
        if self._is_symbol(";"):
            self._take()
        return [] if is_operator else [name for name in names if not name.startswith("~")]

    def _skip_initializers(self) -> None:
        """`: a_(x), b_{y}`, up to the body."""
        self._take()
        while True:
            while self._next.kind == "name" or self._is_symbol("::"):
                self._take()
            if self._is_symbol("<"):
                self._skip_group()
            if not (self._is_symbol("(") or self._is_symbol("{")):
                raise self._fail("'(' or '{' of a member's initializer")
            self._skip_group()
            if not self._is_symbol(","):
                return
            self._take()
