"""Writes parts into the record of a run, and reads them back from any format that a dpfl has
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MethodType
from typing import Any

from dpfl import codec
from dpfl.client.descent import objectives, optimisers
from dpfl.errors import DpflError
from dpfl.privacy.accounting import budget, published_claims
from dpfl.privacy.mechanisms.noises import haar_release, matrix_release, noise_shares, secure_noise
from dpfl.privacy.queries import metric
from dpfl.server import schedules
from dpfl.server.aggregation import update, weights
from dpfl.server.algorithm import Algorithm
from dpfl.server.steps import adaptive

MODULES = (
    adaptive,
    budget,
    haar_release,
    matrix_release,
    metric,
    objectives,
    optimisers,
    published_claims,
    schedules,
    secure_noise,
    noise_shares,
    update,
    weights,
)
"""Modules whose parts a record may name: a part is known to the codec once its module is
imported.
"""


def describe(algorithm: Algorithm) -> dict[str, Any]:
    """Writes an algorithm for the record of a run.

    A claim that a user's own function computes is recorded by its text alone: a function has no
    written form.

    Args:
        algorithm: The algorithm.

    Returns:
        The algorithm as the codec writes it.
    """
    claim = algorithm.claim
    if not isinstance(claim.formula, MethodType):
        algorithm = replace(algorithm, claim=replace(claim, formula=None))
    return codec.encode(algorithm)  # type: ignore[no-any-return]


def describe_options(options: Iterable[tuple[str, object]]) -> dict[str, Any]:
    """Writes a model's options for the record of a run.

    Args:
        options: The options by name.

    Returns:
        The options as the codec writes them. An object without a written form is named by its
        class.
    """
    return {name: _option(value) for name, value in options}


def _option(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _option(item) for name, item in value.items()}
    try:
        return codec.encode(value)
    except DpflError:
        return codec.tag_of(value)


def algorithm_of(words: Any) -> Algorithm:
    """Reads an algorithm from the record of a run.

    Args:
        words: What `describe` returned, as TOML or JSON gives it back.

    Returns:
        The algorithm.

    Raises:
        DpflError: The record describes no algorithm, or one with parts that this package does not
            have.
    """
    return codec.decode_as(
        Algorithm,
        words,
        "The record of the run describes no algorithm; restore experiment.toml from a copy.",
    )
