"""Every public name of 0.1 still works, or is declared gone with a reason.

`fixtures/names_0_1.json` has, for each module of 0.1, the names in its `__all__` and those that its
README, pages and examples used. `fixtures/members_0_1.json` has the parameters and public members
of these classes and functions. Both were collected from the source of 0.1 and never change.
"""

import importlib
import inspect
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dpfl.deprecation import _OldAttribute
from dpfl.run.flat_options import HOMES

FIXTURES = Path(__file__).parent / "fixtures"
NAMES: dict[str, list[str]] = json.loads((FIXTURES / "names_0_1.json").read_text())
MEMBERS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "members_0_1.json").read_text())

GONE_MODULES = {
    "dpfl.audit.amplifiers": "used by one example; now dpfl.audit.amplification.amplifiers",
    "dpfl.lazy": "internal: imports heavy packages on demand",
    "dpfl.node.letters": "internal: the message format, which 0.2 replaced",
    "dpfl.node.optimisers": "a part of own systems; now dpfl.client.optimisers",
    "dpfl.node.task": "a part of own systems; now dpfl.client.task",
    "dpfl.node.wire": "internal: the message format, which 0.2 replaced",
    "dpfl.reproduce": "the papers' tables are a package of their own, dpfl_papers",
    "dpfl.server.clipping_bounds": "a paper's theorem; now dpfl_papers.theorems.clipping",
    "dpfl.server.hellinger_bounds": "a paper's theorem; now dpfl_papers.theorems.hellinger",
    "dpfl.server.wavelet_bounds": "a paper's theorem; now dpfl_papers.theorems.wavelets",
}
GONE_MEMBERS = {
    "dpfl.audit.Report.finding": "a search through `findings`, which no page named",
    "dpfl.privacy.Release.of_models": "internal: a rule between parts of a release",
    "dpfl.server.steps.Fixed.extra": "the interface of step policies, a part of own systems",
    "dpfl.tasks.Task.shown": "on the interface; every task has it",
}
GONE_KEYWORDS = {
    "dpfl.engines.Engine.run(order)": "the interface, which no engine's caller names",
    "dpfl.secagg.": "internal: the protocol passes messages by position",
    "dpfl.server.steps.Fixed.": "the interface of step policies, a part of own systems",
    "dpfl.tasks.Task.labels(given)": "on the interface; every task has it",
}
"""Keywords by their full name, or by the package or class that all of them are in."""

GROUPED = {"dpfl.train": set(HOMES)}
"""Keywords that a function takes beside those of its signature."""


def module_of(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(name)


def named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("module", NAMES)
def test_every_name_can_be_imported_or_is_declared_gone(module: str) -> None:
    if module in GONE_MODULES:
        with pytest.raises(ModuleNotFoundError):
            module_of(module)
    else:
        module_of(module)
        for name in NAMES[module]:
            assert named(f"{module}.{name}") is not None


def is_member(owner: type, name: str) -> bool:
    """A member is in the class, among its annotations, or assigned in its methods."""
    return name in dir(owner) or any(
        name in inspect.get_annotations(base)
        or re.search(rf"\bself\.{name}\b", inspect.getsource(base))
        for base in owner.__mro__
        if base.__module__.startswith("dpfl")
    )


def current_member(owner: type, name: str) -> Any:
    """The function under a name of 0.1 or its new name; None for what is no function."""
    member = inspect.getattr_static(owner, name, None)
    if isinstance(member, _OldAttribute):
        assert is_member(owner, member.new), f"{owner.__name__}.{member.new}"
        member = inspect.getattr_static(owner, member.new, None)
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member


def keywords_of(function: Any) -> Iterator[str]:
    """The parameters of a function, and the old keywords that its decorators take."""
    yield from inspect.signature(function).parameters
    layer = function.__init__ if inspect.isclass(function) else function
    while hasattr(layer, "__wrapped__"):
        yield from inspect.getclosurevars(layer).nonlocals.get("names", ())
        layer = layer.__wrapped__


def missing_keywords(path: str, function: Any, parameters: list[str]) -> set[str]:
    keywords = {*keywords_of(function), *GROUPED.get(path, ())}
    if "old_options" in keywords:  # `regroup_options` refuses what was never a keyword
        return set()
    return {f"{path}({name})" for name in parameters if name not in keywords}


def is_gone(keyword: str) -> bool:
    return any(keyword.startswith(gone) for gone in GONE_KEYWORDS)


@pytest.mark.parametrize(
    "path", [path for path in MEMBERS if path.rpartition(".")[0] not in GONE_MODULES]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_member_and_keyword_works_or_is_declared_gone(path: str) -> None:
    thing = named(path)
    parameters = MEMBERS[path].get("parameters")
    keywords = missing_keywords(path, thing, parameters) if parameters else set()
    missing = set()
    for name, parameters in MEMBERS[path].get("members", {}).items():
        if not is_member(thing, name):
            missing.add(f"{path}.{name}")
            continue
        member = current_member(thing, name)
        if parameters is not None and inspect.isfunction(member):
            keywords |= missing_keywords(f"{path}.{name}", member, parameters)
    assert missing == {gone for gone in GONE_MEMBERS if gone.rpartition(".")[0] == path}
    assert {keyword for keyword in keywords if not is_gone(keyword)} == set()


def test_nothing_is_declared_gone_that_never_was() -> None:
    assert set(GONE_MODULES) <= set(NAMES)
    for path in GONE_MEMBERS:
        owner, _, name = path.rpartition(".")
        assert name in MEMBERS[owner]["members"]
