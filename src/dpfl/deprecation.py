"""Old public names and keywords, which warn for one version before they go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
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


def deprecated_attributes(owner: str, names: Mapping[str, str]) -> Callable[[Any, str], Any]:
    """Builds a class's `__getattr__` that still serves its old attributes, with a warning.

    Args:
        owner: The name of the class.
        names: The new name for each old name.

    Returns:
        A function for the class's `__getattr__`. It warns with a `DeprecationWarning`, and raises
        `AttributeError` for a name that the class never had.
    """

    def get(self: Any, name: str) -> Any:
        if name not in names:
            raise AttributeError(f"{owner!r} object has no attribute {name!r}")
        warn(
            f"{owner}.{name} is now {owner}.{names[name]}; the old name goes in version 0.3.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(self, names[name])

    return get


def regroup_options(
    function: str,
    old: Mapping[str, Any],
    groups: Mapping[str, tuple[Any, Callable[..., Any], Collection[str]]],
) -> tuple[Any, ...]:
    """Builds option groups from keywords that were parameters of their own before.

    Args:
        function: The function's name.
        old: The keywords that the function was called with and no longer lists.
        groups: For each parameter that is a group now: the value it was called with, how a group
            is built from old keywords, and which keywords these are.

    Returns:
        Each group, in order: as it was passed, built from the old keywords with a
        `DeprecationWarning`, or None where there is neither.

    Raises:
        TypeError: A keyword was never a parameter, or is passed beside its group.
    """
    all_names = {name for _, _, names in groups.values() for name in names}
    for name in old:
        if name not in all_names:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    result = []
    for parameter, (group, build, names) in groups.items():
        options = {name: value for name, value in old.items() if name in names}
        if options and group is not None:
            raise TypeError(f"{function}() got both {parameter} and {', '.join(options)}")
        if options:
            warn(
                f"{function}({', '.join(f'{name}=...' for name in options)}) is now "
                f"{function}({parameter}=...); the old keywords go in version 0.3.",
                DeprecationWarning,
                stacklevel=3,
            )
        result.append(build(**options) if options else group)
    return tuple(result)
