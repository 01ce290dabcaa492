"""The flat keywords that `dpfl.train` had before its option groups. They go in version 0.3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from warnings import warn

from dpfl.run.options import Aggregation, Evaluation, Execution, Privacy

P = ParamSpec("P")
R = TypeVar("R")

GROUPS = {
    "privacy": Privacy(),
    "aggregation": Aggregation(),
    "evaluation": Evaluation(),
    "execution": Execution(),
}
HOMES = {
    **dict.fromkeys(("unit", "accountant", "ledger", "entropy", "noise", "arithmetic"), "privacy"),
    **dict.fromkeys(("survivors", "colluders", "masks"), "aggregation"),
    **dict.fromkeys(("evaluate_every", "metric"), "evaluation"),
    **dict.fromkeys(
        ("seed", "workers", "out", "resume", "progress", "callbacks", "host", "experiment"),
        "execution",
    ),
}
"""The group of each old keyword."""
FIELDS = {"evaluate_every": "every", "host": "nodes"}
"""The field of an old keyword, where it has another name."""


def accepts_flat_options(function: Callable[P, R]) -> Callable[P, R]:
    """Lets a function with option groups take the old flat keywords, with one warning per call.

    Args:
        function: Takes the keywords `privacy`, `aggregation`, `evaluation` and `execution`.

    Returns:
        The same function. It warns with a `DeprecationWarning` that says where each keyword went.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        groups, replacement = group_flat_options(kwargs)
        if replacement:
            warn(
                f"Flat options of dpfl.train go in version 0.3; write {replacement}.",
                DeprecationWarning,
                stacklevel=2,
            )
        return function(*args, **groups)  # type: ignore[arg-type]

    return call


def group_flat_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Puts flat options into their groups.

    Args:
        options: The keywords of a call, flat and in groups.

    Returns:
        The same options in groups, and the code that replaces the flat ones ("" if there are none).
    """
    options_by_group = dict(options)
    fields: dict[str, dict[str, Any]] = {}
    if isinstance(options_by_group.get("aggregation"), str):
        fields["aggregation"] = {"kind": options_by_group.pop("aggregation")}
    for name in [name for name in options_by_group if name in HOMES]:
        field = FIELDS.get(name, name)
        fields.setdefault(HOMES[name], {})[field] = options_by_group.pop(name)
    for group, values in fields.items():
        options_by_group[group] = replace(options_by_group.get(group, GROUPS[group]), **values)
    code = [
        f"{group}=dpfl.{group.capitalize()}({', '.join(f'{field}=...' for field in values)})"
        for group, values in fields.items()
    ]
    return options_by_group, ", ".join(code)
