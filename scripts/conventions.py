"""Lists where the code departs from the conventions of CONTRIBUTING.md that ruff and import-linter
cannot check: names, docstrings, file sizes, and a test file for every module.

The check of participles also covers the scripts, benchmarks and examples.

    python scripts/conventions.py src/dpfl/privacy tests/privacy
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path.cwd() if __name__ == "__main__" else Path(__file__).parents[1]
MOST_LINES = 400
TOOLS = ("scripts", "benchmarks", "examples")
"""Folders beside `src` whose names follow the conventions, too."""

IRREGULAR_PARTICIPLES = frozenset(
    """asked begun bought broken built chosen counted dealt done drawn found given grown held kept
    known left lost made paid said seen sent shown spent stood taken told wanted written""".split()  # noqa: SIM905
)
"""Past participles whatever they end in. Every other word in `-ed` is taken for one, too."""

NO_PARTICIPLES = frozenset(
    """bed bleed breed deed embed exceed feed hundred indeed need proceed red seed shed speed
    succeed weed""".split()  # noqa: SIM905
)
"""Words in `-ed` that are no participles."""

EXCEPTIONS = {
    "DIVERGED": "a written reason of a refusal",
    "FAILED": "a written reason of a refusal",
    "Keyed": "the term for randomness that follows from a key",
    "UNBOUNDED": "the written word for an infinite epsilon",
    "UNCOVERED": "a written reason of a refusal",
    "UNMASKED": "a written reason of a refusal",
    "Uncalibrated": "the part `noise.uncalibrated`, noise that has no multiplier yet",
    "BROKEN": "a written verdict of an audit",
    "REFUTED": "a written verdict of an audit",
    "binned": "a written field of the query of scales",
    "claimed": "the epsilon that a paper claims: a written key, and the term beside proven",
    "hidden": "the option of `mlp` for the width of its hidden layer, which experiments name",
    "issued": "a written field of certificates",
    "measured": "what an attack or a test set measured: a written key, and the term beside proven",
    "printed": "the number that a paper prints, a written column of result tables",
    "reported": "a written field of certificates",
    "rounded": "a written key of a policy, `tell.size.rounded`",
    "skewed": "the option of the partition `mix`, which experiments name",
    "started": "a written field of runs and certificates",
    "stated": "a written field of statements and certificates",
    "trained": "a written field of certificates",
    "unaccounted": "a written field of statements and certificates",
    "used": "the epsilon of the releases that were made: a written key, and the term beside proven",
}
"""Participles that may be names, and the reason."""

MORE_WORDS = re.compile("[a-z][A-Z]")
"""Where the second word of a class begins."""

DOCUMENTED_BY_OPTIONS = frozenset({"command", "callback"})
"""Decorators of command-line functions, whose options carry their own help."""

NO_ERRORS = frozenset({"NotImplementedError", "Exit"})
"""What is raised and is no error of the function: a base method's, and the end of a command."""

WRAPPERS = frozenset({"Annotated", "ClassVar", "Final"})
"""Types that say more about the type that they wrap."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[Path, ast.Module]:
    """Reads every Python file under `src`.

    Returns:
        The syntax tree of each file.
    """
    return {path: ast.parse(path.read_text()) for path in sorted((ROOT / "src").rglob("*.py"))}


@cache
def tools() -> dict[Path, ast.Module]:
    """Reads every Python file of the scripts, benchmarks and examples.

    Returns:
        The syntax tree of each file.
    """
    paths = (path for folder in TOOLS for path in sorted((ROOT / folder).rglob("*.py")))
    return {path: ast.parse(path.read_text()) for path in paths}


def duplicate_classes() -> Iterator[str]:
    """Finds public classes that share a name.

    Yields:
        The place of each such class.
    """
    places = defaultdict(list)
    for path, module in modules().items():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(_place(path, node))
    for name, where in places.items():
        if len(where) > 1:
            yield from (f"{place} {name} is the name of {len(where)} classes" for place in where)


def missing_docstrings() -> Iterator[str]:
    """Finds public names without a docstring.

    A method needs none where a base class documents it.

    Yields:
        The place of each such name.
    """
    for path, module in modules().items():
        if not ast.get_docstring(module):
            yield f"{_place(path, module)} the module has no docstring"
        for name, node in _public(module):
            exempt = isinstance(node, Function) and bool(
                _decorators(node) & {"overload", "setter"} or _inherits(name)
            )
            if not exempt and not ast.get_docstring(node):
                yield f"{_place(path, node)} {name} has no docstring"


def missing_sections() -> Iterator[str]:
    """Finds docstrings of public functions without `Args:` or `Returns:`.

    Yields:
        The place of each such function.
    """
    no_sections = {"property", "cached_property", "overload", "setter"} | DOCUMENTED_BY_OPTIONS
    for path, module in modules().items():
        for name, node in _public(module):
            if not isinstance(node, Function) or _decorators(node) & no_sections:
                continue
            if _has_options(node):
                continue
            if _is_command(node):
                continue
            text = ast.get_docstring(node)
            if text is None:
                continue  # missing_docstrings names it, or a base class documents it
            if _inherits(name):
                continue
            if _parameters(node) and "Args:" not in text:
                yield f"{_place(path, node)} {name} has no Args:"
            if _has_value(node) and "Returns:" not in text and "Yields:" not in text:
                yield f"{_place(path, node)} {name} has no Returns:"


def missing_raises() -> Iterator[str]:
    """Finds docstrings of public functions that raise an error by themselves and have no `Raises:`.

    A base method that only says that it is not implemented needs none, and neither does an error
    inside a `try`.

    Yields:
        The place of each such function.
    """
    for path, module in modules().items():
        for name, node in _public(module):
            if not isinstance(node, Function) or _decorators(node) & {
                "property",
                "cached_property",
            }:
                continue
            text = ast.get_docstring(node)
            if text is None or "Raises:" in text or _has_options(node) or _is_command(node):
                continue
            if any(_errors(node)) and _parameters(node):
                yield f"{_place(path, node)} {name} has no Raises:"


def participles() -> Iterator[str]:
    """Finds variables, parameters, fields and functions that a bare participle names.

    A flag may have such a name if its type is written and is `bool`. Scripts, benchmarks and
    examples count as well as `src`.

    Yields:
        The place of each such name.
    """
    for path, module in (modules() | tools()).items():
        flags = _flags(module)
        for scope, node in _scopes(module):
            for name in _names(node):
                if _is_participle(name) and name not in flags[_owner(scope, node)]:
                    yield f"{_place(path, node)} {name} is a participle"


def missing_tests() -> Iterator[str]:
    """Finds modules that have no test file of their own.

    Yields:
        The test file that each of them should have.
    """
    for path in modules():
        if path.name in ("__init__.py", "__main__.py"):
            continue
        relative = path.relative_to(ROOT / "src")
        parts = relative.parts[1:] if relative.parts[0] == "dpfl" else relative.parts
        test = ROOT.joinpath("tests", *parts[:-1], f"test_{parts[-1]}")
        if not test.exists():
            yield f"{path.relative_to(ROOT)} has no {test.relative_to(ROOT)}"


def long_files() -> Iterator[str]:
    """Finds files with more than 400 lines.

    Yields:
        Each such file with its number of lines.
    """
    for path in (*modules(), *sorted((ROOT / "tests").rglob("*.py"))):
        lines = len(path.read_text().splitlines())
        if lines > MOST_LINES:
            yield f"{path.relative_to(ROOT)} has {lines} lines"


CHECKS: tuple[Callable[[], Iterator[str]], ...] = (
    duplicate_classes,
    missing_docstrings,
    missing_sections,
    missing_raises,
    participles,
    missing_tests,
    long_files,
)


def _place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def _public(node: ast.Module | ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """Yields the public classes, functions and methods of a module or class by qualified name."""
    for child in node.body:
        if isinstance(child, ast.ClassDef | Function) and not child.name.startswith("_"):
            yield child.name, child
            if isinstance(child, ast.ClassDef):
                yield from ((f"{child.name}.{name}", inner) for name, inner in _public(child))


@cache
def _documented_by_bases() -> dict[str, set[str]]:
    """Maps each class name to the methods that its base classes in `src` document."""
    bases: dict[str, set[str]] = defaultdict(set)
    documented_methods: dict[str, set[str]] = defaultdict(set)
    for module in modules().values():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                bases[node.name] |= {_last_name(base) for base in node.bases}
                documented_methods[node.name] |= {
                    method.name
                    for method in node.body
                    if isinstance(method, Function) and ast.get_docstring(method)
                }

    def base_methods(name: str) -> set[str]:
        return {
            method
            for base in bases.get(name, ())
            for method in documented_methods.get(base, set()) | base_methods(base)
        }

    return {name: base_methods(name) for name in list(bases)}


def _inherits(name: str) -> bool:
    owner, _, method = name.rpartition(".")
    return method in _documented_by_bases().get(owner.rpartition(".")[2], ())


def _last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _decorators(node: Function) -> set[str]:
    calls = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
    return {_last_name(call) for call in calls}


def _errors(node: ast.AST) -> Iterator[ast.Raise]:
    """Yields the statements of a function that raise an error which leaves it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Try) and child in node.body:
            continue
        if isinstance(child, ast.Raise) and child.exc and _error_name(child.exc) not in NO_ERRORS:
            yield child
        yield from _errors(child)


def _error_name(node: ast.expr) -> str:
    return _last_name(node.func if isinstance(node, ast.Call) else node)


def _is_command(node: Function) -> bool:
    """Tells whether every parameter is an option or argument of typer, which carries its help."""
    words = [ast.unparse(item.annotation or ast.Constant("")) for item in node.args.args]
    return bool(words) and all(
        "typer.Option(" in word or "typer.Argument(" in word for word in words
    )


def _parameters(node: Function) -> list[str]:
    arguments = node.args
    names = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def _has_options(node: Function) -> bool:
    """Tells whether parameters carry the help of a command line in their types."""
    arguments = (*node.args.args, *node.args.kwonlyargs)
    return any("typer." in ast.unparse(item.annotation) for item in arguments if item.annotation)


def _has_value(node: Function) -> bool:
    if node.returns is None or (isinstance(node.returns, ast.Constant) and not node.returns.value):
        return False
    return _last_name(node.returns) not in ("NoReturn", "Never")


def _is_participle(name: str) -> bool:
    """Tells whether a name is a participle and nothing else: `clipped`, but not `clipped_rows`."""
    word = name.strip("_").lower()
    if name in EXCEPTIONS or word in NO_PARTICIPLES or "_" in word or MORE_WORDS.search(name):
        return False
    return word in IRREGULAR_PARTICIPLES or (word.endswith("ed") and len(word) > len("ed"))


def _names(node: ast.AST) -> list[str]:
    """Returns the names that a node gives to something."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    if isinstance(node, ast.arg):
        return [node.arg]
    return [node.name] if isinstance(node, ast.ClassDef | Function) else []


def _scopes(scope: ast.AST, node: ast.AST | None = None) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yields every node of a module with the function, class or module that it is part of."""
    for child in ast.iter_child_nodes(node or scope):
        yield scope, child
        if isinstance(child, ast.ClassDef | Function):
            yield from _scopes(child)
        else:
            yield from _scopes(scope, child)


def _owner(scope: ast.AST, node: ast.AST) -> ast.AST | None:
    """Returns the scope of a name; None for an attribute, which every method of a class may set."""
    return None if isinstance(node, ast.Attribute) else scope


def _flags(module: ast.Module) -> dict[ast.AST | None, set[str]]:
    """Maps each scope to its names whose type is `bool`, and None to such attributes and fields."""
    flags: dict[ast.AST | None, set[str]] = defaultdict(set)
    for scope, node in _scopes(module):
        annotation = node.returns if isinstance(node, Function) else _annotation(node)
        if annotation is None or not _is_bool(annotation):
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node
        for name in _names(target):
            flags[_owner(scope, target)].add(name)
            if isinstance(scope, ast.ClassDef):
                flags[None].add(name)
    return flags


def _annotation(node: ast.AST) -> ast.expr | None:
    return node.annotation if isinstance(node, ast.AnnAssign | ast.arg) else None


def _is_bool(annotation: ast.expr) -> bool:
    """Tells whether a type is `bool` or `bool | None`, perhaps wrapped, as in `ClassVar[bool]`."""
    if isinstance(annotation, ast.Subscript) and _last_name(annotation) in WRAPPERS:
        inner = annotation.slice
        return _is_bool(inner.elts[0] if isinstance(inner, ast.Tuple) else inner)
    return ast.unparse(annotation) in ("bool", "bool | None", "None | bool")


def main(prefixes: list[str]) -> int:
    """Prints every departure under some folders.

    Args:
        prefixes: Beginnings of paths, such as `src/dpfl/privacy`. None means all.

    Returns:
        1 where there is one, for the shell.
    """
    lines = [line for check in CHECKS for line in check()]
    selected_lines = [line for line in lines if line.startswith(tuple(prefixes or [""]))]
    print("\n".join(selected_lines))
    print(f"{len(selected_lines)} in all")
    return bool(selected_lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
