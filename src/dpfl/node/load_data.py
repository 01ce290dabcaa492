"""Loads the data of a node, once, as its policy says, as a federation of one client."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from dpfl import data
from dpfl.bad_values import wrong_value
from dpfl.data import DataSource, Federation, partition
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.node.policy import NodePolicy, PolicySplit
from dpfl.privacy.units import protects_person


def load_node_data(policy: NodePolicy) -> Federation:
    """Loads the node's rows, under the node's name.

    Args:
        policy: The node's policy. Relative paths start in its folder.

    Returns:
        A federation whose one client is this node. Other rows of a dealt data set are dropped.

    Raises:
        DpflError: The data cannot be read, or the unit is a person and no column names persons.
    """
    options = dict(policy.data)
    name, folder, rows_per_person = (
        options.pop(key, None) for key in ("name", "data_dir", "rows_per_person")
    )
    if not isinstance(name, str):
        raise DpflError(
            "data.name in the policy is the name of a data set, or the path of a table or an .npz "
            "file: give it."
        )
    path = policy.folder / Path(name).expanduser()
    source = data.load(
        str(path) if path.exists() else name, Path(folder) if folder else None, **options
    )
    rows = torch.arange(len(source.train))
    if policy.split is not None:
        rows = _rows_of_client(source, policy.split)
    train = replace(
        source.train, x=source.train.x[rows].contiguous(), y=source.train.y[rows].contiguous()
    )
    federation = Federation(
        train,
        None,
        (torch.arange(len(rows)),),
        how="own",
        persons=None if source.persons is None else source.persons[rows],
        private=source.private,
        names=(policy.name,),
        rows_per_person=rows_per_person,
    )
    federation.count_units(policy.limits.unit)  # refuses persons that no column names
    return federation


def digest(federation: Federation, unit: str) -> str:
    """Computes the digest that binds a ledger to the node's data. It stays at the node.

    Args:
        federation: The node's data.
        unit: The unit that the ledger counts for.

    Returns:
        A digest of the samples; for persons, also of whose each row is.
    """
    return (
        federation.by_person(federation.clients)
        if protects_person(unit)
        else federation.client_digests
    )[0]


def _rows_of_client(source: DataSource, split: PolicySplit) -> torch.Tensor:
    if split.partition == "site":
        federation = source.by_owner()
    else:
        federation = source.split(
            split.clients, partition.parse(split.partition, **split.options), split.seed
        )
    names = list(federation.names)
    number = names.index(split.client) if split.client in names else split.client
    if not isinstance(number, int) or not 0 <= number < len(names):
        advice = f"give a number below {len(names)}, or one of {', '.join(names[:5])}"
        raise wrong_value(split.client, "split.client", advice)
    return federation.clients[number]


def schema_digest(federation: Federation) -> str:
    """Computes the digest of what each column of a table means.

    Args:
        federation: The node's data.

    Returns:
        The digest; empty where the samples are not rows of a table.
    """
    schema = federation.train.schema
    return hashlib.sha256(schema.to_json().encode()).hexdigest() if schema else ""
