"""What users bring by the import path of a factory, "package.module:factory", and whether workers
can find it.
"""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Generic, TypeVar

from dpfl.errors import DpflError

Thing = TypeVar("Thing")


def is_path(name: str) -> bool:
    return ":" in name


@dataclass(frozen=True)
class ImportKind(Generic[Thing]):
    """A kind of thing that users may bring: what it is called, its type, and the public name of
    that.
    """

    what: str
    type: type[Thing]
    public: str

    def factory(self, path: str) -> Callable[..., object]:
        place, _, attribute = path.partition(":")
        try:
            found = getattr(importlib.import_module(place), attribute)
        except Exception as error:  # an import runs the user's code, which can fail in any way
            raise DpflError(
                f"Cannot import the {self.what} {path!r} ({type(error).__name__}: {error}); "
                'write it as "package.module:factory", installed or in the current folder.'
            ) from error
        if not callable(found):
            raise DpflError(
                f"{path!r} is not callable; name a function that returns a {self.public}."
            )
        return found  # type: ignore[no-any-return]

    def make(self, path: str, options: Mapping[str, Any]) -> Thing:
        factory = self.factory(path)
        try:
            made = factory(**options)
        except DpflError:
            raise
        except Exception as error:  # the user's code again
            raise DpflError(
                f"The {self.what} {path!r} failed with the options {dict(options)} "
                f"({type(error).__name__}: {error}); "
                "correct either."
            ) from error
        if not isinstance(made, self.type):
            raise DpflError(
                f"The {self.what} {path!r} returned a {type(made).__name__}; it must return a "
                f"{self.public}."
            )
        return made


def refuse_unreachable(what: str, thing: object) -> None:
    """Other processes read the program and import the classes of what they are given: those of a
    prompt they cannot.
    """
    program = getattr(sys.modules["__main__"], "__file__", None)
    if program and not Path(program).is_file():
        raise DpflError(
            f"Worker processes cannot read the program {program}: save it in a file, or set "
            "workers = 1."
        )
    try:
        (_Reached if program is None else pickle.Pickler)(io.BytesIO()).dump(thing)
    except (_Unreachable, pickle.PicklingError, AttributeError, TypeError) as error:
        raise DpflError(
            f"Worker processes cannot import the {what} ({error}): put its class at the top of a "
            "module of its own, "
            "or set workers = 1."
        ) from None


class _Unreachable(Exception):
    """A class or function that only this process has."""


class _Reached(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, type | FunctionType) and thing.__module__ == "__main__":
            raise _Unreachable(f"{thing.__qualname__} was defined at a prompt")
        return NotImplemented
