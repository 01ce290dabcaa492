"""Partitions by their names in an experiment."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

from dpfl.bad_values import refuse_unknown_options, require_name
from dpfl.data.explicit_partition import ExplicitPartition
from dpfl.data.partition_kinds import (
    IID,
    CappedDirichlet,
    Dirichlet,
    LabelSkew,
    Mix,
    Partition,
    Shards,
    Unequal,
)
from dpfl.data.population import RandomClients
from dpfl.errors import DpflError

NAMES: dict[str, type] = {
    "iid": IID,
    "dirichlet": Dirichlet,
    "closed": CappedDirichlet,
    "shards": Shards,
    "label-skew": LabelSkew,
    "mix": Mix,
    "unequal": Unequal,
    "mapping": ExplicitPartition,
    "drawn": RandomClients,
}


def parse(name: str, **options: Any) -> Partition | RandomClients:
    """Makes a partition from its name and options.

    Args:
        name: The name.
        options: Its options. `mix` hands the options that are not its own to its skewed part.

    Returns:
        The partition.

    Raises:
        DpflError: There is no such partition, or an option is unknown or missing.
    """
    require_name("partition", name, NAMES)
    kind = NAMES[name]
    if kind is Mix:
        inner = {
            key: options.pop(key) for key in list(options) if key not in ("share", "iid", "skewed")
        }
        options["iid"] = _parse_inner(options.get("iid", "iid"), {})
        options["skewed"] = _parse_inner(options.get("skewed", "dirichlet"), inner)
    fields = dataclasses.fields(kind)
    option_names = [field.name for field in fields]
    refuse_unknown_options(f"The partition {name!r}", options, option_names)
    required_keys = [field.name for field in fields if field.default is dataclasses.MISSING]
    if missing := next((key for key in required_keys if key not in options), None):
        raise DpflError(f"The partition {name!r} needs {missing}: give it a value.")
    return cast("Partition | RandomClients", kind(**options))


def _parse_inner(how: Any, options: dict[str, Any]) -> Partition:
    if not isinstance(how, str):
        return cast(Partition, how)
    return cast(
        Partition, parse(how, **({"beta": 0.05, **options} if how == "dirichlet" else options))
    )


def describe(how: Partition | RandomClients) -> str:
    """Writes a partition as an experiment has it, such as dirichlet(beta=0.05, minimum=20).

    Args:
        how: The partition.

    Returns:
        The text.
    """
    name = next((name for name, kind in NAMES.items() if type(how) is kind), None)
    if name is None or isinstance(how, ExplicitPartition):
        return getattr(how, "__name__", None) or str(how)
    values = {field.name: getattr(how, field.name) for field in dataclasses.fields(cast(Any, how))}
    options = (
        f"{key}={describe(value) if callable(value) else value}" for key, value in values.items()
    )
    return f"{name}({', '.join(options)})" if values else name
