"""What there is to say of every system, taken from the system itself: its docstring, its options,
its parts.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from dpfl.algorithms import ALGORITHMS, factory_of, from_name, options_of
from dpfl.algorithms.meanings import meaning
from dpfl.client.noise_placement import NoisePlacement
from dpfl.server.algorithm import Algorithm

WHERE = {
    NoisePlacement.EVERY_STEP: "in every step, at the client",
    NoisePlacement.CLIENT_UPDATE: "on every upload, at the client",
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
    """A line a system: name, unit, variants, paper, and what is proven of each variant."""
    return [_line(name) for name in ALGORITHMS]


def describe_one(name: str) -> dict[str, Any]:
    """With its text, its options and their defaults, and the parts that it is made of."""
    options, text = options_of(name), _text(name)
    made = from_name(name)
    return _line(name) | {
        "text": text.partition("\n\n")[2].strip(),
        "options": {option: _option(name, parameter) for option, parameter in options.items()},
        "parts": {
            part: repr(getattr(made, part)) for part in PARTS if getattr(made, part) is not None
        },
    }


def _option(system: str, parameter: inspect.Parameter) -> dict[str, Any]:
    default = None if parameter.default is inspect.Parameter.empty else parameter.default
    kind = (
        parameter.annotation
        if isinstance(parameter.annotation, str)
        else getattr(parameter.annotation, "__name__", "")
    )
    return {
        "type": _KINDS.get(kind, kind).removesuffix(" | None"),
        "default": default,
        "meaning": meaning(system, parameter.name),
    }


_KINDS = {"_empty": "", "Formula | None": "str", "tuple[float, ...]": "list of float"}
"""Types in the words of an experiment file, where they are not those of Python."""


def _line(name: str) -> dict[str, Any]:
    variants = ("sound", "published") if "variant" in options_of(name) else ("sound",)
    made = {
        variant: from_name(name, variant=variant) if len(variants) > 1 else from_name(name)
        for variant in variants
    }
    return {
        "name": name,
        "unit": made["sound"].unit,
        "variants": list(variants),
        "paper": _text(name).partition("\n")[0].partition(":")[0],
        "proven": {variant: guarantee(algorithm) for variant, algorithm in made.items()},
    }


def guarantee(algorithm: Algorithm) -> str:
    """One line on what is proven; the figure is the run's."""
    if algorithm.placement is NoisePlacement.NONE:
        return "nothing: no noise"
    if algorithm.leaks:
        return f"nothing: it sends {algorithm.leaks[0].partition(',')[0]} without noise"
    where = WHERE[algorithm.placement]
    if algorithm.variant == "published" and algorithm.schedule:
        return f"less than it claims: noise {where}, counted by a limit theorem"
    if algorithm.variant == "published":
        return f"far less than it claims: noise {where}, for too small a sensitivity"
    return f"epsilon for one {algorithm.unit}: noise {where}"


def _text(name: str) -> str:
    module = sys.modules[factory_of(name).__module__]
    return inspect.cleandoc(module.__doc__ or "")
