"""Old public names and keywords, which warn for one version before they go.

Version 0.2 renamed much of what 0.1 published. Until version 0.3, the old names of modules,
classes, functions, attributes and keywords still work, each with a `DeprecationWarning` that says
the new name. Nothing in `dpfl` itself uses an old name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar
from warnings import warn

_Class = TypeVar("_Class", bound=type)
_Params = ParamSpec("_Params")
_Return = TypeVar("_Return")


def deprecated_names(
    package: str, names: Mapping[str, str], load: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Builds a package's `__getattr__` that still serves its old names, with a warning.

    Args:
        package: The package's `__name__`.
        names: The new name for each old name: a name in the same package, or a full path such as
            "dpfl.run.result.Result".
        load: Finds every other name, where names are imported on demand.

    Returns:
        A function for the package's `__getattr__`. It warns with a `DeprecationWarning`, and
        raises `AttributeError` for a name that the package never had.
    """

    def get(name: str) -> Any:
        if name not in names and load is not None:
            return load(name)
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, _, new = names[name].rpartition(".")
        home = home or package
        warn(
            f"{package}.{name} is now {home}.{new}; the old name goes in version 0.3.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(home), new)

    return get


class _OldAttribute:
    """Reads an attribute under its old name, with a warning."""

    def __init__(self, owner: str, old: str, new: str) -> None:
        self.owner, self.old, self.new = owner, old, new

    def __get__(self, instance: object, owner: type) -> Any:
        _warn_of_name(f"{self.owner}.{self.old}", f"{self.owner}.{self.new}", stacklevel=2)
        return getattr(owner if instance is None else instance, self.new)


def _warn_of_name(old: str, new: str, stacklevel: int) -> None:
    warn(
        f"{old} is now {new}; the old name goes in version 0.3.",
        DeprecationWarning,
        stacklevel=stacklevel + 1,
    )


def new_name(kind: str, name: str, names: Mapping[str, str]) -> str:
    """Translates a name that a user gave, with a warning if it is an old one.

    Args:
        kind: What is named, for the warning.
        name: The name that was given.
        names: The new name for each old name.

    Returns:
        The new name, or the given one if it is not an old name.
    """
    if name not in names:
        return name
    _warn_of_name(f"{kind} {name!r}", repr(names[name]), stacklevel=3)
    return names[name]


def keep_old_names(**names: str) -> Callable[[_Class], _Class]:
    """Keeps old names of a class's attributes, methods and constructor keywords, with a warning.

    The old names are no fields. So the written form, equality, the hash, `repr` and pickling of a
    part stay as they are.

    Args:
        **names: The new name for each old name, as `old="new"`.

    Returns:
        A decorator that returns the same class. It stands above `@dataclass`.

    Example:
        >>> @keep_old_names(level="clip_norm")
        ... @dataclass(frozen=True)
        ... class Flat:
        ...     clip_norm: float
        >>> Flat(level=1.0).level  # warns twice
        1.0
    """

    def keep(cls: _Class) -> _Class:
        for old, new in names.items():
            setattr(cls, old, _OldAttribute(cls.__name__, old, new))
        if "__init__" in vars(cls):
            from inspect import signature  # which costs what all of `import dpfl` costs

            parameters = signature(cls).parameters
            keywords = {old: new for old, new in names.items() if new in parameters}
            if keywords:
                cls.__init__ = renamed_keywords(**keywords)(cls.__init__)  # type: ignore[misc]
        return cls

    return keep


def override_renamed_methods(cls: type, names: Mapping[str, str]) -> None:
    """Lets a subclass override a method under its old name, with a warning.

    Args:
        cls: The subclass, from `__init_subclass__` of its base.
        names: The new name for each old name.
    """
    for old, new in names.items():
        if old in vars(cls):
            _warn_of_name(f"{cls.__name__}.{old}", f"{cls.__name__}.{new}", stacklevel=3)
            setattr(cls, new, vars(cls)[old])


def renamed_keywords(
    **names: str,
) -> Callable[[Callable[_Params, _Return]], Callable[_Params, _Return]]:
    """Keeps old keywords of a function, with a warning.

    Args:
        **names: The new keyword for each old one, as `old="new"`.

    Returns:
        A decorator for the function. A call that gives an old keyword beside its new one is a
        `TypeError`.
    """

    def keep(function: Callable[_Params, _Return]) -> Callable[_Params, _Return]:
        name = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def call(*args: _Params.args, **kwargs: _Params.kwargs) -> _Return:
            if not kwargs.keys().isdisjoint(names):
                for old, new in names.items():
                    if old not in kwargs:
                        continue
                    if new in kwargs:
                        raise TypeError(f"{name}() got both {old} and {new}")
                    _warn_of_name(f"{name}({old}=...)", f"{name}({new}=...)", stacklevel=2)
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return keep


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
