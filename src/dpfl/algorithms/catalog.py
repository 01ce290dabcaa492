"""Describes every system from the system itself: its docstrings, its options and its parts.

The first line of a system's module names its paper. The `Args:` of its factory explain its options.
`dpfl algorithms`, the web pages and docs/reference.md all read them from here.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

from dpfl.algorithms import ALGORITHMS, factory_of, from_name, options_of
from dpfl.client.noise_placement import NoisePlacement
from dpfl.server.algorithm import Algorithm

WHERE = {
    NoisePlacement.EVERY_STEP: "in every step, at the client",
    NoisePlacement.CLIENT_UPDATE: "on every update, at the client",
    NoisePlacement.ROUND_SUM: "on the sum, at the server",
}
PARTS = (
    "local",
    "steps",
    "samples",
    "updates",
    "clients",
    "weights",
    "server",
    "schedule",
    "centre",
)


def describe_all() -> list[dict[str, Any]]:
    """Describes every system in short.

    Returns:
        For each system its name, unit, variants and paper, and what is proven for each variant.
    """
    return [_line(name) for name in ALGORITHMS]


def describe_one(name: str) -> dict[str, Any]:
    """Describes one system in full.

    Args:
        name: A system's name, or the import path "package.module:factory" of a user's own.

    Returns:
        The short description, and also the text of the system's docstring, each option with its
        type, default and meaning, and the parts that the defaults give.

    Raises:
        DpflError: There is no such system.
    """
    options, text = options_of(name), _text(name)
    meanings = option_meanings(factory_of(name))
    algorithm = from_name(name)
    parts = {part: getattr(algorithm, part) for part in PARTS}
    return _line(name) | {
        "text": text.partition("\n\n")[2].strip(),
        "options": {
            option: _option(parameter, meanings.get(option, ""))
            for option, parameter in options.items()
        },
        "parts": {part: repr(value) for part, value in parts.items() if value is not None},
    }


def option_meanings(factory: Callable[..., Algorithm]) -> dict[str, str]:
    """Reads the meanings of a system's options from the `Args:` of its factory's docstring.

    Args:
        factory: The function that builds the algorithm.

    Returns:
        The meaning of each option that the docstring explains, on one line.
    """
    section = re.search(r"^Args:\n((?: .*\n?|\n)+)", inspect.getdoc(factory) or "", re.MULTILINE)
    entries = re.split(r"^    (\w+): ", section[1], flags=re.MULTILINE)[1:] if section else []
    pairs = zip(entries[::2], entries[1::2], strict=True)
    return {option: " ".join(text.split()) for option, text in pairs}


def _option(parameter: inspect.Parameter, meaning: str) -> dict[str, Any]:
    default = None if parameter.default is inspect.Parameter.empty else parameter.default
    kind = (
        parameter.annotation
        if isinstance(parameter.annotation, str)
        else getattr(parameter.annotation, "__name__", "")
    )
    return {
        "type": _KINDS.get(kind, kind).removesuffix(" | None"),
        "default": default,
        "meaning": meaning,
    }


_KINDS = {"_empty": "", "Formula | None": "str", "tuple[float, ...]": "list of float"}
"""Types in the words of an experiment file, where they are not those of Python."""


def _line(name: str) -> dict[str, Any]:
    variants = ("sound", "published") if "variant" in options_of(name) else ("sound",)
    algorithms = {
        variant: from_name(name, variant=variant) if len(variants) > 1 else from_name(name)
        for variant in variants
    }
    return {
        "name": name,
        "unit": algorithms["sound"].unit,
        "variants": list(variants),
        "paper": _text(name).partition("\n")[0].partition(":")[0],
        "proven": {variant: guarantee(algorithm) for variant, algorithm in algorithms.items()},
    }


def guarantee(algorithm: Algorithm) -> str:
    """Says in one line what is proven, without a figure: epsilon belongs to a run.

    Args:
        algorithm: The system, in one of its variants.

    Returns:
        The sentence.
    """
    if not algorithm.has_noise:
        return "nothing: no noise"
    if algorithm.leaks:
        value = algorithm.leaks[0].partition(",")[0].removesuffix(" without noise")
        return f"nothing: it releases {value} without noise"
    where = WHERE[algorithm.placement]
    if not algorithm.sound and algorithm.schedule:
        return f"less than it claims: noise {where}, accounted for by a limit theorem"
    if not algorithm.sound:
        return f"far less than it claims: noise {where}, for too small a sensitivity"
    return f"epsilon for one {algorithm.unit}: noise {where}"


def _text(name: str) -> str:
    module = sys.modules[factory_of(name).__module__]
    return inspect.cleandoc(module.__doc__ or "")
