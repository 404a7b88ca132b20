# SPDX-License-Identifier: Apache-2.0
"""Which attributes SGLang's scheduler side uses of its prefix cache, found by reading its sources.

`uses(folder)` parses `sglang/srt` below a folder, leaving out SGLang's own cache implementations,
and reports every attribute read from something that is a cache, a cache's controller, or a node of
a cache, with the arguments where it is called. An expression is a cache by its name (`tree_cache`, `self.tree_cache`, in the session code
also `self.inner`) or because the function assigned one to it before. Nothing of SGLang is imported.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

# Names that mean a cache or a node wherever they occur: as a variable, or after a dot.
KINDS = {
    "tree_cache": "cache",
    "cache_controller": "controller",
    "last_node": "node",
    "last_device_node": "node",
    "last_host_node": "node",
    "best_match_node": "node",
    "root_node": "node",
}
# In mem_cache only these files are callers of a cache; the others implement SGLang's own.
CALLERS_IN_MEM_CACHE = (
    "common.py",
    "allocation.py",
    "kv_cache_builder.py",
    "registry.py",
    "session_aware_cache.py",
)
# Folders of SGLang that serve other hardware, other modalities, or only measure.
NOT_SCHEDULING = ("multimodal_gen", "debug_utils", "hardware_backend", "test")


@dataclasses.dataclass(frozen=True)
class Use:
    where: str  # file:line
    # Of a call without * and **: how many arguments by position, and the names of the others.
    positional: int | None = None
    keywords: tuple[str, ...] = ()


Uses = dict[tuple[str, str], list[Use]]  # by kind and attribute


def sources(folder: Path) -> Iterator[Path]:
    root = folder / "sglang" / "srt"
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if parts[0] in NOT_SCHEDULING:
            continue
        if parts[0] == "mem_cache" and not (
            parts[1] == "allocator" or (len(parts) == 2 and parts[1] in CALLERS_IN_MEM_CACHE)
        ):
            continue
        yield path


def uses(folder: Path) -> Uses:
    found: Uses = {}
    for path in sources(folder):
        text = path.read_text()
        if "tree_cache" in text or ("session" in path.parts and "inner" in text):
            reader = _Reader(str(path.relative_to(folder / "sglang" / "srt")), found)
            reader.visit(ast.parse(text))
    return found


class _Reader(ast.NodeVisitor):
    def __init__(self, file: str, found: Uses) -> None:
        self.file = file
        self.found = found
        self.wraps = "session" in file  # its cache stands before another, `self.inner`
        self.scopes: list[dict[str, str]] = [{}]

    def kind(self, node: ast.expr) -> str | None:
        """What an expression is, if it is a cache, a controller or a node."""
        if isinstance(node, ast.Name):
            for scope in reversed(self.scopes):
                if node.id in scope:
                    return scope[node.id]
            return KINDS.get(node.id) if node.id != "root_node" else None
        if isinstance(node, ast.Attribute):
            if self.wraps and node.attr == "inner":
                return "cache"
            if node.attr in ("cache_controller", "root_node"):
                # Other things than caches have these too.
                return KINDS[node.attr] if self.kind(node.value) == "cache" else None
            return KINDS.get(node.attr)
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "getattr":
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                return KINDS.get(name.value)
        return None

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.scopes.append({})
        self.generic_visit(node)
        self.scopes.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        kind = self.kind(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name) and (kind or target.id in self.scopes[-1]):
                self.scopes[-1][target.id] = kind or ""
            else:
                self.visit(target)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        kind = self.kind(node.value)
        if kind and isinstance(node.ctx, ast.Load):
            self._add(kind, node.attr, Use(f"{self.file}:{node.lineno}"))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """getattr() without a default is a use; with one, or as hasattr(), it is a question."""
        where = f"{self.file}:{node.lineno}"
        function, names = node.func, [keyword.arg for keyword in node.keywords]
        if isinstance(function, ast.Attribute):
            kind = self.kind(function.value)
            stars = None in names or any(isinstance(a, ast.Starred) for a in node.args)
            if kind and not stars:
                keywords = tuple(name for name in names if name is not None)
                self._add(kind, function.attr, Use(where, len(node.args), keywords))
        elif getattr(function, "id", None) == "getattr" and len(node.args) == 2:
            kind, name = self.kind(node.args[0]), node.args[1]
            if kind and isinstance(name, ast.Constant):
                self._add(kind, str(name.value), Use(where))
        self.generic_visit(node)

    def _add(self, kind: str, attribute: str, use: Use) -> None:
        self.found.setdefault((kind, attribute), []).append(use)
