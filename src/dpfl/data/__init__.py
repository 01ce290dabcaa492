"""Who holds what: data sets, and how they are spread over the clients of a federation.

>>> federation = dpfl.data.sample().split(clients=10, how=dpfl.data.Dirichlet(0.05), seed=0)
"""

from typing import TYPE_CHECKING

from dpfl.data.catalog import (
    cifar10,
    emnist,
    fashion_mnist,
    is_owned,
    is_table,
    leaf,
    load,
    medmnist,
    mnist,
    npz,
    own_words,
    randhie,
    sample,
    shakespeare,
    table,
    tensors,
)
from dpfl.data.dataset import Dataset, DataSource
from dpfl.data.federation import Federation
from dpfl.data.partition import (
    IID,
    CappedDirichlet,
    Dirichlet,
    ExplicitPartition,
    LabelSkew,
    Mix,
    Shards,
    Unequal,
)
from dpfl.data.population import Population, RandomClients
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
