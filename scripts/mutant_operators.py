"""Mutants of a source file: the same file with one small fault, each under a name that does not
depend on line numbers.

An operator replaces one node of the syntax tree: a constant, a comparison, a minimum, a sign, a
factor or a logical word; or it removes a check. Error messages, annotations and decorators stay as
they are.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
SIGNS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
FACTORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
}
EXTREMES = {
    "min": "max", "clamp_min": "clamp_max", "minimum": "maximum", "floor": "ceil", "any": "all",
    "max": "min", "clamp_max": "clamp_min", "maximum": "minimum", "ceil": "floor", "all": "any",
}  # fmt: skip
CHECKS = re.compile(r"(^|_)(check|expect|refuse|require|verify|proving|first)(_|$)")
"""Names of functions that are called only because they may raise."""


@dataclass(frozen=True)
class Mutant:
    """One fault: bytes `start` to `end` of the file become `text`."""

    file: str
    function: str
    operator: str
    occurrence: int
    start: int
    end: int
    text: str

    @property
    def name(self) -> str:
        """The file, function and operator, and the number among these in the order of the text."""
        return f"{self.file}:{self.function or 'module'}:{self.operator}:{self.occurrence}"

    def apply(self, source: bytes) -> bytes:
        """Returns the source with this fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """Returns the changed lines, as a unified diff without its head."""
        before, after = source.decode().splitlines(), self.apply(source).decode().splitlines()
        lines = difflib.unified_diff(before, after, lineterm="", n=0)
        return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def mutants(root: Path, file: str) -> list[Mutant]:
    """Lists the mutants of one file below `root`, in the order of the text."""
    source = (root / file).read_bytes()
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    changes = sorted(finder.changes, key=lambda change: (change.start, change.end, change.operator))
    counts: Counter[tuple[str, str]] = Counter()
    mutant_list = []
    for change in changes:
        key = change.function, change.operator
        counts[key] += 1
        place = (change.start, change.end, change.text)
        mutant_list.append(Mutant(file, change.function, change.operator, counts[key], *place))
    return mutant_list


@dataclass(frozen=True)
class _Change:
    function: str
    operator: str
    start: int
    end: int
    text: str


class _Finder(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self.changes: list[_Change] = []

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return
        for operator, new in _faults(node):
            self._add(operator, node, new)
        super().visit(node)

    def _add(self, operator: str, node: ast.AST, new: ast.AST) -> None:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        text = (
            ast.unparse(new)
            if isinstance(new, ast.Constant | ast.stmt)
            else f"({ast.unparse(new)})"
        )
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        self.changes.append(_Change(".".join(self._scope), operator, start, end, text))

    def _inside(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """Visits the body and the defaults, without decorators, annotations and bases."""
        self._scope.append(node.name)
        if not isinstance(node, ast.ClassDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _inside

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise):
            self._add("unchecked", node.body[0], ast.Pass())
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        self._add("unchecked", node, ast.Pass())

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Call) and CHECKS.search(_function_name(value)):
            self._add("unchecked", node, ast.Pass())
        if isinstance(value, ast.Yield) and _is_refusal(value.value):
            new = deepcopy(node)
            new.value.value.elts[0] = ast.Constant(False)  # type: ignore[attr-defined]
            self._add("unchecked", node, new)
        self.generic_visit(node)


def _function_name(call: ast.Call) -> str:
    function = call.func
    return (
        function.id
        if isinstance(function, ast.Name)
        else function.attr
        if isinstance(function, ast.Attribute)
        else ""
    )


def _is_refusal(value: ast.expr | None) -> bool:
    """Tells whether a value is `condition, Reason.X`, which a guard yields to refuse a task."""
    return (
        isinstance(value, ast.Tuple)
        and len(value.elts) == 2
        and "Reason." in ast.unparse(value.elts[1])
    )


def _faults(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yields the faults of this node itself, not those of its parts."""
    for operators in (_constants, _comparisons, _extremes, _arithmetic, _logic):
        yield from operators(node)


def _with(node: ast.AST, change: Callable[[ast.AST], None]) -> ast.AST:
    new = deepcopy(node)
    change(new)
    return new


def _constants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield "flag", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(2 * value if value else 1.0)


def _comparisons(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if not isinstance(node, ast.Compare):
        return
    for place, operator in enumerate(node.ops):
        opposite = COMPARISONS[type(operator)]()

        def swap(new: ast.AST, place: int = place, opposite: ast.cmpop = opposite) -> None:
            new.ops[place] = opposite  # type: ignore[attr-defined]

        yield "compare", _with(node, swap)


def _extremes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if not isinstance(node, ast.Call) or _function_name(node) not in {*EXTREMES, "sqrt"}:
        return
    name = _function_name(node)
    if name == "sqrt":
        if node.args:
            yield "root", node.args[0]
        return

    def rename(new: ast.AST) -> None:
        function = new.func  # type: ignore[attr-defined]
        if isinstance(function, ast.Name):
            function.id = EXTREMES[name]
        else:
            function.attr = EXTREMES[name]

    yield "extreme", _with(node, rename)


def _arithmetic(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", node.operand
    if not isinstance(node, ast.BinOp | ast.AugAssign):
        return
    kind = type(node.op)
    for operator, others in (("sign", SIGNS), ("factor", FACTORS)):
        if kind in others:
            yield operator, _with(node, lambda new, other=others[kind]: setattr(new, "op", other()))  # type: ignore[misc]
    if isinstance(node, ast.BinOp) and kind in (ast.Mult, ast.Div, ast.Pow):
        if _is_two(node.right):
            yield "two", node.left
        elif kind is ast.Mult and _is_two(node.left):
            yield "two", node.right


def _is_two(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant)
        and type(node.value) in (int, float)
        and node.value in (2, 0.5)
    )


def _logic(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "logic", _with(node, lambda new: setattr(new, "op", other))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "logic", node.operand
