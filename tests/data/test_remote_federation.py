"""A federation whose samples are elsewhere: what its server knows, and nothing of them."""

import pytest
import torch

from dpfl.data import Dataset
from dpfl.data.remote_federation import RemoteFederation
from dpfl.errors import DpflError
from dpfl.tasks import Counts, MultiClass


def form(task=MultiClass(3)) -> Dataset:
    return Dataset("own", torch.randn(5, 4), task.examples(4)[:1].expand(5).clone(), task)


def test_sizes_are_what_nodes_declared_and_samples_are_blank() -> None:
    federation = RemoteFederation.of(form(), None, ["boston", "seattle"], [120, 300])
    assert federation.sizes == (120, 300)
    assert federation.names == ("boston", "seattle")
    assert federation.shape == (4,)
    assert not federation.train.x.any()
    assert federation.client_digests == ()


@pytest.mark.parametrize("task", [MultiClass(3), Counts()])
def test_it_is_another_federation_where_anything_that_is_known_differs(task) -> None:
    one = RemoteFederation.of(form(task), None, ["a", "b"], [10, 20])
    assert one.sha256 == RemoteFederation.of(form(task), None, ["a", "b"], [10, 20]).sha256
    others = [(["a", "b"], [10, 21]), (["a", "c"], [10, 20]), (["b", "a"], [10, 20])]
    assert (
        len(
            {
                one.sha256,
                *(RemoteFederation.of(form(task), None, *other).sha256 for other in others),
            }
        )
        == 4
    )


@pytest.mark.parametrize(
    ("names", "sizes"),
    [(["a"], [1, 2]), (["a", "b"], [1, 0]), (["a", "a"], [1, 1]), (["../a"], [1])],
)
def test_what_nodes_declare_is_checked(names, sizes) -> None:
    with pytest.raises(DpflError):
        RemoteFederation.of(form(), None, names, sizes)
