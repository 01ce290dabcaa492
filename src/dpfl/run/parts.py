"""Parts as plain words and numbers, in the record of a run, and made again from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import MethodType, ModuleType
from typing import Any

from dpfl.errors import DpflError
from dpfl.node import objectives, optimisers, task
from dpfl.privacy import (
    clip,
    columns,
    haar_release,
    histogram,
    matrix,
    matrix_release,
    mean,
    metric,
    noise,
    published,
    release,
    sampling,
    schedules,
    secure_noise,
    shared_noise,
)
from dpfl.server import adaptive_steps, algorithm, kept, steps, update, weights
from dpfl.server import schedules as server_schedules

ROOMS: tuple[ModuleType, ...] = (
    clip, columns, haar_release, histogram, matrix, matrix_release, mean, metric, noise, published, release, sampling,
    schedules, secure_noise, shared_noise, adaptive_steps, algorithm, kept, server_schedules, steps, update, weights,
    objectives, optimisers, task,
)  # fmt: skip
"""Where the parts of an algorithm are."""


def describe(value: Any) -> Any:
    """Frozen parts as plain words and numbers, with the name of each part; a part's method with that part."""
    if isinstance(value, MethodType) and is_dataclass(value.__self__):
        return {**describe(value.__self__), "method": value.__name__}
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: describe(getattr(value, field.name)) for field in fields(value)}
        return {"part": type(value).__name__} | named
    if isinstance(value, (tuple, list)):
        return [describe(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def made_again(value: Any) -> Any:
    """The part of a description; what a record leaves out is None, and so is a function that is no part's own."""
    if isinstance(value, list):
        return tuple(made_again(item) for item in value)
    if not isinstance(value, Mapping):
        return value
    kind = _kinds().get(str(value.get("part")))
    if kind is None:
        raise DpflError(f"The part {value.get('part')!r} is none of this package, and cannot be made again from its record.")
    given = {field.name: made_again(value.get(field.name)) for field in fields(kind) if field.init}
    if kind is algorithm.Claim and not callable(given["formula"]):
        given["formula"] = None
    try:
        made = kind(**given)
        return getattr(made, value["method"]) if "method" in value else made
    except (TypeError, ValueError, AttributeError) as error:
        raise DpflError(f"The part {value.get('part')!r} cannot be made again from its record ({error}).") from error


@cache
def _kinds() -> dict[str, type[Any]]:
    found = [part for room in ROOMS for part in vars(room).values() if isinstance(part, type) and is_dataclass(part)]
    return {part.__name__: part for part in found}
