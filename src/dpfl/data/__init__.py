"""Data sets, and how they are spread over the clients of a federation.

A `DataSource` is data in one place. `DataSource.split` deals it to clients by a partition, and
`DataSource.by_owner` keeps the owners that it came with. Either gives a `Federation`.

>>> federation = dpfl.data.sample().split(clients=10, how=dpfl.data.Dirichlet(0.05), seed=0)
"""

from typing import TYPE_CHECKING

from dpfl.data.catalog import (
    is_owned,
    is_table,
    leaf,
    load,
    medmnist,
    npz,
    own_words,
    randhie,
    shakespeare,
    table,
    tensors,
)
from dpfl.data.data_source import DataSource
from dpfl.data.dataset import Dataset
from dpfl.data.explicit_partition import ExplicitPartition
from dpfl.data.federation import Federation
from dpfl.data.partition_kinds import (
    IID,
    CappedDirichlet,
    Dirichlet,
    LabelSkew,
    Mix,
    Shards,
    Unequal,
)
from dpfl.data.population import Population, RandomClients
from dpfl.data.published_images import cifar10, emnist, fashion_mnist, mnist, sample
from dpfl.deprecation import deprecated_names

__all__ = [
    "IID",
    "CappedDirichlet",
    "DataSource",
    "Dataset",
    "Dirichlet",
    "ExplicitPartition",
    "Federation",
    "LabelSkew",
    "Mix",
    "Population",
    "RandomClients",
    "Shards",
    "Unequal",
    "cifar10",
    "emnist",
    "fashion_mnist",
    "is_owned",
    "is_table",
    "leaf",
    "load",
    "medmnist",
    "mnist",
    "npz",
    "own_words",
    "randhie",
    "sample",
    "shakespeare",
    "table",
    "tensors",
]

if not TYPE_CHECKING:
    __getattr__ = deprecated_names(
        __name__,
        {
            "Closed": "CappedDirichlet",
            "Drawn": "RandomClients",
            "Mapping": "ExplicitPartition",
            "Source": "DataSource",
        },
    )
