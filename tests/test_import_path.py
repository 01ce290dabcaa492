"""A factory of a user's own is imported by its path, and every failure is a sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from dpfl.errors import DpflError
from dpfl.import_path import ImportKind, is_path, refuse_unreachable

NUMBER = ImportKind("number", int, "whole number")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of a user's own that is named `own`."""
    module = ModuleType("own")
    module.seven = lambda plus=0: 7 + plus
    module.text = lambda: "seven"
    module.broken = lambda: 1 / 0
    module.constant = 7
    monkeypatch.setitem(sys.modules, "own", module)
    return module


def test_a_path_has_a_colon() -> None:
    assert is_path("own:seven")
    assert not is_path("cnn")


def test_a_factory_is_called_with_its_options(own: ModuleType) -> None:
    assert NUMBER.factory("own:seven") is own.seven
    assert NUMBER.make("own:seven", {"plus": 1}) == 8


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere:seven", r"Cannot import the number 'nowhere:seven' \(ModuleNotFoundError"),
        ("own:eight", r"Cannot import .*AttributeError"),
        ("own:constant", "is not callable; name a function that returns a whole number"),
        ("own:broken", "failed with the options .*ZeroDivisionError"),
        ("own:text", "returned a str; it must return a whole number"),
    ],
)
def test_a_path_that_gives_no_such_thing_is_refused(
    own: ModuleType, path: str, message: str
) -> None:
    with pytest.raises(DpflError, match=message):
        NUMBER.make(path, {})


def test_workers_cannot_read_a_program_that_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys.modules["__main__"], "__file__", str(Path("/nowhere/program.py")), raising=False
    )
    with pytest.raises(DpflError, match="save it in a file, or set workers = 1"):
        refuse_unreachable("model", 7)


def test_workers_cannot_import_what_was_defined_at_a_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    here = type("Here", (), {"__module__": "__main__"})
    with pytest.raises(DpflError, match="Here was defined at a prompt"):
        refuse_unreachable("model", here)
    refuse_unreachable("model", Path("x"))
