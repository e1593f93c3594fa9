"""Small changes to code, each a fault that a test should notice. Pure."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
BOUNDARIES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
SYMMETRIC = {"max", "min", "same_values"}
"""Functions for which the order of two arguments makes no difference."""
NOT_CODE = {"annotation", "returns", "decorator_list", "type_comment"}
"""Fields of nodes that hold no code that runs: a change there is no fault."""


@dataclass(frozen=True)
class Mutant:
    """One change to one file. `start` and `end` are byte offsets of what is replaced, `code` is the line it is in.

    `lines` are the first and the last line of the statement, of one with a body those of its head; there are none where
    the code runs when the module is imported. `number` counts what is changed in the same way in a line of such text.
    """

    path: str
    line: int
    code: str
    function: str
    before: str
    after: str
    start: int
    end: int
    lines: tuple[int, int] | None
    number: int

    @property
    def name(self) -> str:
        """What tells the mutant from all others, and stays the same when other lines change."""
        return f"{self.path} {self.function}: {self.code}: {self.before} -> {self.after} #{self.number}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.function}: {self.before} -> {self.after}"

    def applied(self, source: bytes) -> bytes:
        """Return the file with the change; each line after it keeps its number."""
        lost = source[self.start : self.end].count(b"\n")
        after, bracket = (self.after[:-1], ")") if self.after.startswith("(") else (self.after, "")
        return source[: self.start] + (after + "\n" * lost + bracket).encode() + source[self.end :]


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return every change that can be made to a file, in its order."""
    lines = source.splitlines(keepends=True)
    offsets = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
    found, times = [], Counter[tuple[str, ...]]()
    for node, place in _nodes(ast.parse(source), Place("module", None)):
        # ast counts lines from 1, and columns in bytes of UTF-8.
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        for changed in _changes(node):
            after = ast.unparse(changed)
            # The brackets keep what is around the expression from binding to a part of it.
            after = f"({after})" if isinstance(changed, ast.expr) else after
            code = lines[node.lineno - 1].decode().strip()
            before, function = ast.unparse(node), place.function
            number = times[function, code, before, after] = times[function, code, before, after] + 1
            found.append(Mutant(path, node.lineno, code, function, before, after, start, end, place.lines, number))
    return found


class Place(NamedTuple):
    """Where code is: the name of its function or class, and the lines of its statement if it is in a function."""

    function: str
    lines: tuple[int, int] | None


def _nodes(tree: ast.AST, place: Place) -> Iterator[tuple[Any, Place]]:
    """Yield statements and expressions that run, with the place they are in."""
    for field, value in ast.iter_fields(tree):
        if field in NOT_CODE:
            continue
        is_called_later = field == "body" and isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in value if isinstance(value, list) else [value]:
            # Positions within an f-string are not those of the file before Python 3.12.
            if not isinstance(node, ast.AST) or isinstance(node, ast.JoinedStr):
                continue
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                continue
            # `strict` of zip guards what cannot be: the two are of one length wherever it is given.
            if isinstance(node, ast.keyword) and node.arg == "strict":
                continue
            inner = place
            if isinstance(node, ast.stmt) and (is_called_later or place.lines):
                inner = inner._replace(lines=_lines(node))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                inner = inner._replace(function=f"{place.function}.{node.name}".removeprefix("module."))
            if isinstance(node, (ast.stmt, ast.expr)):
                yield node, inner
            yield from _nodes(node, inner)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    """Return the first and the last line of a statement, without those of its body."""
    last = statement.end_lineno or statement.lineno
    body = getattr(statement, "body", None)
    return statement.lineno, max(statement.lineno, body[0].lineno - 1) if body else last


def _changes(node: Any) -> Iterator[ast.AST]:
    """Yield what a node can be replaced with."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for table in (OPPOSITES, BOUNDARIES):
            if type(node.ops[0]) in table:
                yield ast.Compare(node.left, [table[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        if isinstance(node.ctx, ast.Load):
            yield ast.Subscript(node.value, ast.Constant(node.slice.value + "_"), node.ctx)
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) not in ("None", "False"):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Call) and len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args):
        first, second, *rest = node.args
        if ast.unparse(first) != ast.unparse(second) and ast.unparse(node.func) not in SYMMETRIC:
            swapped = copy.copy(node)
            swapped.args = [second, first, *rest]
            yield swapped
    elif _can_be_dropped(node):
        yield ast.Pass()


def _can_be_dropped(node: ast.AST) -> bool:
    """Tell whether code without the statement still runs: a call, a change of something, a jump. No name is lost."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete))
