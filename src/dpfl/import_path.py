"""Models, systems and data of a user's own, named by the import path of a factory,
"package.module:factory"; and whether worker processes can import them.
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
    """Tells an import path from a name of a catalog.

    Args:
        name: The text as the user wrote it.

    Returns:
        True for an import path, which has a colon.
    """
    return ":" in name


@dataclass(frozen=True)
class ImportKind(Generic[Thing]):
    """A kind of thing that users may bring.

    Attributes:
        what: What it is called in a sentence, such as "model".
        type: The type that a factory must return.
        public: The public name of that type, such as "torch.nn.Module".
    """

    what: str
    type: type[Thing]
    public: str

    def factory(self, path: str) -> Callable[..., object]:
        """Imports a factory.

        Args:
            path: Its import path, "package.module:factory".

        Returns:
            The factory.

        Raises:
            DpflError: The import fails, or what it gives cannot be called.
        """
        place, _, attribute = path.partition(":")
        try:
            factory = getattr(importlib.import_module(place), attribute)
        except Exception as error:  # an import runs the user's code, which can fail in any way
            raise DpflError(
                f"Cannot import the {self.what} {path!r} ({type(error).__name__}: {error}); "
                'write it as "package.module:factory", installed or in the current folder.'
            ) from error
        if not callable(factory):
            raise DpflError(
                f"{path!r} is not callable; name a function that returns a {self.public}."
            )
        return factory  # type: ignore[no-any-return]

    def make(self, path: str, options: Mapping[str, Any]) -> Thing:
        """Imports a factory and calls it.

        Args:
            path: Its import path, "package.module:factory".
            options: The keyword arguments of the call.

        Returns:
            What the factory returned.

        Raises:
            DpflError: The import or the call fails, or the result is of another type.
        """
        factory = self.factory(path)
        try:
            thing = factory(**options)
        except DpflError:
            raise
        except Exception as error:  # the user's code again
            raise DpflError(
                f"The {self.what} {path!r} failed with the options {dict(options)} "
                f"({type(error).__name__}: {error}); "
                "correct either."
            ) from error
        if not isinstance(thing, self.type):
            raise DpflError(
                f"The {self.what} {path!r} returned a {type(thing).__name__}; it must return a "
                f"{self.public}."
            )
        return thing


def refuse_unreachable(what: str, thing: object) -> None:
    """Refuses what worker processes could not import.

    A worker reads the program again and imports the classes of what it gets. Neither works for a
    program that is no file, nor for a class that was defined at a prompt.

    Args:
        what: What the thing is called in a sentence, such as "model".
        thing: What the workers would get.

    Raises:
        DpflError: A worker could not have it.
    """
    program = getattr(sys.modules["__main__"], "__file__", None)
    if program and not Path(program).is_file():
        raise DpflError(
            f"Worker processes cannot read the program {program}: save it in a file, or set "
            "workers = 1."
        )
    try:
        (_ReachablePickler if program is None else pickle.Pickler)(io.BytesIO()).dump(thing)
    except (_Unreachable, pickle.PicklingError, AttributeError, TypeError) as error:
        raise DpflError(
            f"Worker processes cannot import the {what} ({error}): put its class at the top of a "
            "module of its own, "
            "or set workers = 1."
        ) from None


class _Unreachable(Exception):
    """A class or function that only this process has."""


class _ReachablePickler(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, type | FunctionType) and thing.__module__ == "__main__":
            raise _Unreachable(f"{thing.__qualname__} was defined at a prompt")
        return NotImplemented
