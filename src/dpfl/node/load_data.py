"""The data of a node: read once, by the words of its policy, as a federation of one client."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from dpfl import data
from dpfl.data import DataSource, Federation, partition
from dpfl.errors import DpflError
from dpfl.lazy_import import torch
from dpfl.node.policy import NodePolicy, PolicySplit


def load_node_data(charter: NodePolicy) -> Federation:
    """Its own rows alone are kept, under the node's name. Paths are of the policy's folder."""
    words = dict(charter.data)
    name, folder, most = (words.pop(word, None) for word in ("name", "data_dir", "rows_per_person"))
    if not isinstance(name, str):
        raise DpflError(
            "data.name in the policy is the name of a data set, or the path of a table or an .npz "
            "file: give it."
        )
    here = charter.folder / Path(name).expanduser()
    place = str(here) if here.exists() else name
    source = data.load(place, Path(folder) if folder else None, **words)
    rows = (
        torch.arange(len(source.train)) if charter.split is None else _dealt(source, charter.split)
    )
    train = replace(
        source.train, x=source.train.x[rows].contiguous(), y=source.train.y[rows].contiguous()
    )
    persons = None if source.persons is None else source.persons[rows]
    own = torch.arange(len(rows))
    found = Federation(
        train,
        None,
        (own,),
        how="own",
        persons=persons,
        private=source.private,
        names=(charter.name,),
        rows_per_person=most,
    )
    found.count_units(
        charter.limits.unit
    )  # persons are refused here, where nobody said whose each row is
    return found


def digest(federation: Federation, unit: str) -> str:
    """Of what a ledger counts: the samples, and for persons whose each is; it stays where they
    are.
    """
    return (federation.by_person(federation.clients) if unit == "person" else federation.holdings)[
        0
    ]


def _dealt(source: DataSource, split: PolicySplit) -> torch.Tensor:
    if split.partition == "site":
        federation = source.by_owner()
    else:
        federation = source.split(
            split.clients, partition.parse(split.partition, **split.options), split.seed
        )
    names = list(federation.names)
    number = names.index(split.client) if split.client in names else split.client
    if not isinstance(number, int) or not 0 <= number < len(names):
        raise DpflError(
            f"split.client is {split.client!r}: give a number below {len(names)}, or one of "
            f"{', '.join(names[:5])}."
        )
    return federation.clients[number]


def schema_digest(federation: Federation) -> str:
    """Of what each column of a table means; empty where samples are no rows of one."""
    schema = federation.train.schema
    return hashlib.sha256(schema.to_json().encode()).hexdigest() if schema else ""
