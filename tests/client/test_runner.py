import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dpfl.client import runner as node_module
from dpfl.client.descent.objectives import Contrastive
from dpfl.client.descent.optimisers import SGD
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask, LocalTraining
from dpfl.errors import DpflError
from dpfl.gradients import clipped as clipped_module
from dpfl.privacy import (
    All,
    FixedSize,
    Flat,
    Gaussian,
    Poisson,
    Release,
    SystemEntropy,
)
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from tests.client.small_client import (
    CLASSES,
    EVENT,
    PLAIN,
    PRIVATE,
    SAMPLES,
    site,
    spent,
    start,
    with_rows,
    work,
)


@pytest.mark.parametrize("bad", [3e19, math.nan])
def test_a_sample_without_a_finite_gradient_is_as_if_it_were_not_there(
    tmp_path: Path, bad: float
) -> None:
    whole = replace(PRIVATE, samples=replace(SAMPLES, sampling=Poisson(1.0), noise=None))
    where = site(tmp_path)
    row = where.data.rows[1][5]
    where.data.x[row] = bad
    with_it = work(where, whole)
    assert with_it.update is not None
    assert not with_it.failure
    left = where.data.rows[1][where.data.rows[1] != row]
    without = work(with_rows(where, where.data.rows[0], left), whole)
    assert torch.allclose(with_it.update, without.update, atol=1e-6)


def test_weights_that_left_all_bounds_give_a_reply_marked_diverged_and_no_update(
    tmp_path: Path,
) -> None:
    whole = replace(
        PRIVATE, samples=replace(SAMPLES, sampling=Poisson(1.0)), local=LocalTraining(SGD(1e41))
    )
    reply = work(site(tmp_path), replace(whole, steps=4))
    assert reply.diverged
    assert "not finite" in reply.failure
    assert reply.update is None
    assert sum(spent(tmp_path).values()) == 4


@pytest.mark.parametrize("held", [0, 1])
def test_a_model_that_is_not_finite_gives_the_same_reply_whatever_a_client_has(
    tmp_path: Path, held: int
) -> None:
    """Else a server that sends one would see whether batches were empty."""
    where = site(tmp_path)
    where = with_rows(where, where.data.rows[0], where.data.rows[1][:held])
    reply = work(
        where, replace(PRIVATE, samples=replace(SAMPLES, sampling=Poisson(1.0))), start() * math.nan
    )
    assert reply.diverged
    assert reply.update is None


class OneWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x[:, :1] * self.weight, (0, CLASSES - 1))


@pytest.mark.parametrize(
    "clipped", [None, Release(FixedSize(1), Flat(1.0))], ids=["plain", "clipped"]
)
@pytest.mark.parametrize("weight", [-3e38, 3e38])
@pytest.mark.parametrize("label", [0, 1])
def test_steps_beyond_all_bounds_are_not_told_where_noise_hides_the_client(
    tmp_path: Path, label: int, weight: float, clipped: Release | None
) -> None:
    """Weights leave float32, or are finite before and after and too far apart for it: which of them
    is the client's secret.
    """
    where = site(tmp_path, OneWeight())
    where.data.x.fill_(1)
    where.data.y.fill_(label)
    upload = UpdateRelease(
        clip=Flat(1.0), noise=Gaussian(1.0), sensitivity_bound=2.0, protects="client"
    )
    one = with_rows(where, where.data.rows[0], where.data.rows[1][:1])
    reply = work(
        one,
        replace(PLAIN, samples=clipped, update=upload, local=LocalTraining(SGD(2e38))),
        torch.tensor([weight]),
    )
    assert reply.update is not None
    assert torch.isfinite(reply.update).all()


@pytest.mark.parametrize("hidden", ["upload", "clients"])
def test_a_client_that_noise_hides_sends_no_news_of_a_loss_that_is_not_finite(
    tmp_path: Path, hidden: str
) -> None:
    where = site(tmp_path)
    where.data.x[where.data.rows[1][5]] = math.nan
    plain = ClientTask(0, 1, 3, LocalTraining(SGD(0.1)), Release())
    assert work(where, plain).diverged, "without noise nobody is hidden"
    noisy = Release(clip=Flat(1.0), noise=Gaussian(1.0))
    upload = UpdateRelease(
        clip=Flat(1.0), noise=Gaussian(1.0), sensitivity_bound=2.0, protects="client"
    )
    reply = work(
        where,
        replace(plain, update=upload) if hidden == "upload" else replace(plain, clients=noisy),
    )
    assert reply.update is not None
    assert torch.isfinite(reply.update).all()
    assert not reply.failure


def test_under_system_entropy_every_answer_is_new_and_every_answer_is_debited(
    tmp_path: Path,
) -> None:
    first = work(site(tmp_path, randomness=SystemEntropy()))
    second = work(site(tmp_path, randomness=SystemEntropy()))
    assert not torch.equal(first.update, second.update)
    assert spent(tmp_path) == {EVENT: 4}


def test_a_plain_task_needs_no_ledger_and_repeats_by_its_key(tmp_path: Path) -> None:
    first = work(site(tmp_path), PLAIN)
    assert torch.equal(first.update, work(site(tmp_path, run="second"), PLAIN).update)
    assert not torch.equal(first.update, work(site(tmp_path), replace(PLAIN, round=4)).update)
    assert not list(tmp_path.iterdir())


def test_a_last_model_is_compared_with_and_not_added_to_the_gradients(tmp_path: Path) -> None:
    def update(mu: float, last: Tensor | None) -> Tensor:
        node = ClientRunner(site(tmp_path))
        found = node.work(
            replace(PLAIN, local=LocalTraining(SGD(0.5), objective=Contrastive(mu))), start(), last
        ).update
        node.close()
        assert found is not None
        return found

    last = torch.randn(len(start()), generator=torch.Generator().manual_seed(4))
    assert torch.allclose(update(0.0, last), update(0.0, None), atol=1e-6)
    assert float((update(1.0, last) - update(1.0, None)).norm()) > 1e-3


def test_whether_a_batch_is_too_large_is_judged_by_the_declared_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is debited or drawn: else a refusal would tell a server how many units there
    are.
    """
    for module in (node_module, clipped_module):
        monkeypatch.setattr(module, "most_units", lambda *_: 29.5)
    task = replace(PRIVATE, samples=replace(SAMPLES, sampling=All()))
    for units in (29, 30):
        where = with_rows(
            site(tmp_path / str(units)), torch.arange(30), torch.arange(60 - units, 60)
        )
        with pytest.raises(
            DpflError, match="By the declared size, a batch may have 30 units, of which 30 can"
        ):
            work(where, task)
        assert not list((tmp_path / str(units)).glob("*"))
        fewer = with_rows(where, torch.arange(30), torch.arange(31, 60), declared_sizes=(29, 29))
        assert work(fewer, task).update is not None
