"""The published systems, one short file each, and the registry that builds them by name.

A system is a function. Its parameters are the options of `[algorithm]` in an experiment file, and
it returns an `Algorithm`: a frozen composition of parts. To read one, start with `fedavg_dp.py`
(noise in the clients' steps) or `dp_fedavg.py` (noise on the sum of a round).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError, validate_call

from dpfl.algorithms.adap_dp_fl import adap_dp_fl
from dpfl.algorithms.ali_dpfl import ali_dpfl
from dpfl.algorithms.als_dpfl import als_dpfl
from dpfl.algorithms.auto import auto
from dpfl.algorithms.ce_fedavg import ce_fedavg
from dpfl.algorithms.custom import custom
from dpfl.algorithms.dp_fedavg import dp_fedavg
from dpfl.algorithms.dp_fedavg_wav import dp_fedavg_wav
from dpfl.algorithms.dp_ftrl import dp_ftrl
from dpfl.algorithms.dp_sgd_wav import dp_sgd_wav
from dpfl.algorithms.dyn_dp_fedavg import dyn_dp_fedavg
from dpfl.algorithms.dyn_dp_sgd import dyn_dp_sgd
from dpfl.algorithms.fedavg import fedavg
from dpfl.algorithms.fedavg_dp import fedavg_dp
from dpfl.algorithms.fedprox import fedprox
from dpfl.algorithms.hw_dpfl import hw_dpfl
from dpfl.algorithms.ldp_fl import ldp_fl
from dpfl.algorithms.moon import moon
from dpfl.algorithms.nbafl import nbafl
from dpfl.algorithms.pe_dpfl import pe_dpfl
from dpfl.algorithms.scaffold import dp_scaffold, scaffold
from dpfl.bad_values import choose, invalid, refuse_unknown_options
from dpfl.deprecation import deprecated_names
from dpfl.errors import DpflError
from dpfl.import_path import ImportKind, is_path
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "ali-dpfl": ali_dpfl,
    "als-dpfl": als_dpfl,
    "fedavg": fedavg,
    "ce-fedavg": ce_fedavg,
    "dp-fedavg": dp_fedavg,
    "dp-fedavg-wav": dp_fedavg_wav,
    "dp-sgd-wav": dp_sgd_wav,
    "fedavg-dp": fedavg_dp,
    "hw-dpfl": hw_dpfl,
    "fedprox": fedprox,
    "moon": moon,
    "scaffold": scaffold,
    "dp-scaffold": dp_scaffold,
    "ldp-fl": ldp_fl,
    "nbafl": nbafl,
    "dp-ftrl": dp_ftrl,
    "adap-dp-fl": adap_dp_fl,
    "dyn-dp-sgd": dyn_dp_sgd,
    "dyn-dp-fedavg": dyn_dp_fedavg,
    "pe-dpfl": pe_dpfl,
    "auto": auto,
    "custom": custom,
}

DEFAULT = "ali-dpfl"
DEMO = {
    "name": DEFAULT,
    "sampling_rate": 0.1,
    "noise_multiplier": 1.4,
    "rate": 1.5,
    "whole_budget": True,
}
"""Options of the default system on the embedded images, for `dpfl demo`."""
AUTO = "auto"
"""The system of a planned experiment. It plans noise and learning rate by the rules of the plan."""


STRICT = ConfigDict(strict=True, allow_inf_nan=False)
"""Options are not converted: neither a truth value nor a word is a number."""


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


@cache
def _strict(factory: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    return validate_call(config=STRICT)(factory)


OWN = ImportKind("algorithm", Algorithm, "dpfl.algorithms.Algorithm")


def factory_of(name: str) -> Callable[..., Any]:
    """Returns the function that builds a system.

    Args:
        name: A system's name, or an import path "package.module:factory".

    Returns:
        The factory.

    Raises:
        DpflError: There is no such system.
    """
    return OWN.factory(name) if is_path(name) else choose("algorithm", name, ALGORITHMS)


def options_of(name: str) -> dict[str, inspect.Parameter]:
    """Returns the options of a system.

    Args:
        name: A system's name, or an import path "package.module:factory".

    Returns:
        The parameters of its factory, with their defaults.

    Raises:
        DpflError: There is no such system.
    """
    return dict(inspect.signature(factory_of(name)).parameters)


def from_name(name: str, **options: Any) -> Algorithm:
    """Builds a system from its name and options.

    Args:
        name: A system's name, or an import path "package.module:factory". A system from an import
            path is recorded under that path.
        **options: Options of the system, as in an experiment file.

    Returns:
        The algorithm.

    Raises:
        DpflError: The name or an option is unknown, or a value has the wrong type.
    """
    if is_path(name):
        return replace(OWN.make(name, options), name=name)
    refuse_unknown_options(f"The algorithm {name!r}", options, options_of(name))
    try:
        return _strict(ALGORITHMS[name])(**{key: _tuples(value) for key, value in options.items()})
    except ValidationError as error:
        raise invalid(error, f"the algorithm {name!r}") from None


def as_algorithm(algorithm: Algorithm | str) -> Algorithm:
    """Returns an algorithm for what a user passed as one.

    Args:
        algorithm: A system's name, or an algorithm, which is returned as it is.

    Returns:
        The algorithm.

    Raises:
        DpflError: It is neither, or there is no system of that name.
    """
    if isinstance(algorithm, str):
        return from_name(algorithm)
    if not isinstance(algorithm, Algorithm):
        raise DpflError(
            "An algorithm is a name such as 'auto', or what a function of dpfl.algorithms returns, "
            f"not a {type(algorithm).__name__}."
        )
    return algorithm


if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"described": "as_algorithm"})

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Claim",
    "adap_dp_fl",
    "ali_dpfl",
    "als_dpfl",
    "as_algorithm",
    "auto",
    "ce_fedavg",
    "custom",
    "dp_fedavg",
    "dp_fedavg_wav",
    "dp_ftrl",
    "dp_scaffold",
    "dp_sgd_wav",
    "dyn_dp_fedavg",
    "dyn_dp_sgd",
    "factory_of",
    "fedavg",
    "fedavg_dp",
    "fedprox",
    "from_name",
    "hw_dpfl",
    "ldp_fl",
    "moon",
    "nbafl",
    "options_of",
    "pe_dpfl",
    "scaffold",
]
