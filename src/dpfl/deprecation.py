"""Old public names, which warn for one version before they go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any
from warnings import warn


def deprecated_names(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Builds a package's `__getattr__` that still serves its old names, with a warning.

    Args:
        package: The package's `__name__`.
        names: The new name for each old name. Both live in the package.

    Returns:
        A function for the package's `__getattr__`. It warns with a `DeprecationWarning`, and
        raises `AttributeError` for a name that the package never had.
    """

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        new = names[name]
        warn(
            f"{package}.{name} is now {package}.{new}; the old name goes in version 0.3.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(package), new)

    return get
