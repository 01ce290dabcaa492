"""Who holds what: data sets, and how they are spread over the clients of a federation.

>>> federation = dpfl.data.sample().split(clients=10, how=dpfl.data.Dirichlet(0.05), seed=0)
"""

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
from dpfl.data.dataset import Dataset, Source
from dpfl.data.federation import Federation
from dpfl.data.partition import IID, Closed, Dirichlet, LabelSkew, Mapping, Mix, Shards, Unequal
from dpfl.data.population import Drawn, Population

__all__ = [
    "IID",
    "Closed",
    "Dataset",
    "Dirichlet",
    "Drawn",
    "Federation",
    "LabelSkew",
    "Mapping",
    "Mix",
    "Population",
    "Shards",
    "Source",
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
