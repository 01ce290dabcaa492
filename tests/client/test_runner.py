import math
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from dpfl.client import runner as node_module
from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDataset, ClientDatasets
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.objectives import Contrastive, CrossEntropy, Objective
from dpfl.client.optimisers import SGD
from dpfl.client.query_answers import outcomes_of
from dpfl.client.release_names import ReleaseNames
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask, LocalTraining
from dpfl.client.workspace import Workspace
from dpfl.data.names import client_names
from dpfl.data.units import UnitGroups
from dpfl.errors import DpflError
from dpfl.gradients import clipped as clipped_module
from dpfl.models import FlatModel, from_module
from dpfl.privacy import (
    All,
    FixedSize,
    Flat,
    Gaussian,
    Keyed,
    Ledger,
    Limit,
    NoClip,
    PerLayer,
    Poisson,
    Release,
    SystemEntropy,
    accountant,
)
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.client_ledgers import ClientLedgers, ledger_path
from dpfl.privacy.mechanisms.clip import ModelClip
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.tasks import MultiClass
from tests.conftest import PATIENCE

FEATURES, CLASSES, IMAGES = 12, 4, 60
SAMPLES = Release(Poisson(0.5), Flat(1.0), Gaussian(1.0))
EVENT = SAMPLES.event(30)
PRIVATE = ClientTask(
    round=3, client=1, steps=2, local=LocalTraining(SGD(0.5)), clients=Release(), samples=SAMPLES
)
PLAIN = replace(PRIVATE, samples=None)


def network(width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, width), nn.Tanh(), nn.Linear(width, CLASSES))


def site(
    folder: Path,
    module: nn.Module | None = None,
    run: str = "first",
    limit: Limit | None = None,
    **options: Any,
) -> ClientContext:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(IMAGES, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (IMAGES,), generator=generator)
    clients = (torch.arange(30), torch.arange(30, 60))
    described = from_module(module or network())
    ledgers = ClientLedgers(folder, client_names(2), "sample", ADD_REMOVE, limit)
    agreed = DisclosureRules(trusted=True, bare=True)
    plain = ClientContext(
        run,
        described,
        MultiClass(CLASSES),
        ClientDatasets(x, y, clients, (30, 30)),
        Keyed(0),
        ledgers,
        policy=agreed,
    )
    return replace(plain, **options)


def with_rows(where: ClientContext, *rows: Tensor, **options: Any) -> ClientContext:
    """The same context with other rows of the clients."""
    return replace(where, data=replace(where.data, rows=rows, **options))


SIZE = FlatModel(network()).layout.size


def start(module: nn.Module | None = None) -> Tensor:
    return FlatModel(module or network()).read()


def work(
    where: ClientContext, task: ClientTask = PRIVATE, vector: Tensor | None = None
) -> ClientReply:
    node = ClientRunner(where)
    try:
        return node.work(task, start() if vector is None else vector)
    finally:
        node.close()


def spent(folder: Path, client: int = 1) -> dict[Any, int]:
    ledger = Ledger.read(ledger_path(folder, client_names(2)[client]))
    try:
        return ledger.spending()
    finally:
        ledger.close()


class Watcher(nn.Module):
    """Reads the ledger, through a connection of its own, whenever it is shown an image."""

    folder: ClassVar[Path]
    seen: ClassVar[list[dict[Any, int]]]

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        Watcher.seen.append(spent(Watcher.folder))
        return self.layer(x)


class Collapses(Watcher):
    def forward(self, x: Tensor) -> Tensor:
        raise MemoryError("the machine gave way")


def slow_disk(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Between the owner's consent and the flush to disk: as long as training takes, and `then`."""
    flush, await_, trained = Ledger._flush, ClientRunner._await, threading.Event()

    def awaited(self: ClientRunner, *values: Any) -> None:
        trained.set()
        await_(self, *values)

    def slowly(self: Ledger) -> None:
        with self._errors(), self._rolled_back_on_failure():
            assert trained.wait(timeout=PATIENCE)
            then()
        flush(self)

    monkeypatch.setattr(Ledger, "_flush", slowly)
    monkeypatch.setattr(ClientRunner, "_await", awaited)


def test_the_debit_is_on_disk_before_the_reply_leaves_though_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_disk(monkeypatch, lambda: None)
    Watcher.folder, Watcher.seen = tmp_path, []
    node = ClientRunner(site(tmp_path, Watcher()))
    reply = node.work(PRIVATE, start(Watcher()))
    assert reply.update is not None
    assert spent(tmp_path) == {EVENT: 2}
    assert Watcher.seen, "it trained"
    assert all(held == {} for held in Watcher.seen), "and it did so while the disk was written"
    node.close()


def test_a_disk_that_fails_after_training_lets_nothing_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    slow_disk(monkeypatch, full)
    with pytest.raises(DpflError, match="nothing was released"):
        work(site(tmp_path))
    assert spent(tmp_path) == {}


def test_the_debit_is_awaited_where_training_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_disk(monkeypatch, lambda: None)
    node = ClientRunner(site(tmp_path, Collapses()))
    with pytest.raises(MemoryError):
        node.work(PRIVATE, start(Collapses()))
    assert spent(tmp_path) == {EVENT: 2}
    node.close()


def test_a_crash_in_training_leaves_the_debit_in_the_ledger_and_no_update(tmp_path: Path) -> None:
    with pytest.raises(MemoryError):
        work(site(tmp_path, Collapses()), vector=start(Collapses()))
    assert spent(tmp_path) == {EVENT: 2}


def test_only_the_client_that_works_is_debited(tmp_path: Path) -> None:
    work(site(tmp_path))
    assert spent(tmp_path, 1) == {EVENT: 2}
    assert not ledger_path(tmp_path, "client-00000").exists()


def affordable(limit: Limit) -> int:
    return limit.remaining({}, EVENT)


def test_a_client_over_budget_refuses_says_so_and_releases_nothing(tmp_path: Path) -> None:
    limit = Limit(10.0, 1e-5, "rdp")
    most = affordable(limit)
    assert most > 0
    reply = work(site(tmp_path, limit=limit), replace(PRIVATE, steps=most + 1))
    assert reply.update is None
    assert "budget" in reply.refused
    assert "epsilon 10" in reply.refused
    assert not reply.failed
    assert not reply.diverged
    assert spent(tmp_path) == {}
    kept = work(site(tmp_path, limit=limit), replace(PRIVATE, steps=most))
    assert kept.update is not None
    assert accountant("rdp").epsilon(spent(tmp_path), 1e-5) <= 10.0


def test_the_owner_s_own_limit_holds_whatever_the_run_says(tmp_path: Path) -> None:
    """Fault: the budget enforced by the server instead of at the node that owns the data."""
    Ledger.open(
        ledger_path(tmp_path, "client-00001"),
        "client-00001",
        "sample",
        ADD_REMOVE,
        Limit(0.01, 1e-5, "rdp"),
    ).close()
    reply = work(site(tmp_path, limit=Limit(100.0, 1e-5, "rdp")))
    assert reply.refused
    assert reply.update is None
    assert spent(tmp_path) == {}


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
    assert not with_it.failed
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
    assert "not finite" in reply.failed
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
    assert not reply.failed


def test_the_noise_of_an_upload_covers_what_float32_makes_of_one_sample(tmp_path: Path) -> None:
    """All weights are so long that a step is half of their last digit: one sample of 30 decides
    whether it is rounded up.
    """
    length, digit, gradient = 1.5 * 2.0**20, 0.125, 0.75 / math.sqrt(9.75)
    rate = digit / 2 / (0.98 * gradient)
    upload = UpdateRelease(clip=Flat(rate), noise=Gaussian(1e-9), sensitivity_bound=2 * rate / 30)
    task = replace(
        PLAIN,
        steps=1,
        samples=Release(FixedSize(30), Flat(1.0)),
        update=upload,
        local=LocalTraining(SGD(rate)),
    )

    def sent(name: str, odd: int, task: ClientTask) -> Tensor:
        where = site(tmp_path / name, nn.Linear(FEATURES, CLASSES))
        where.data.x.fill_(1)
        where.data.y.fill_(0)
        where.data.y[where.data.rows[1][7]] = odd
        reply = work(where, task, torch.full((CLASSES * (FEATURES + 1),), length))
        assert reply.update is not None
        return reply.update.clone()

    apart = float((sent("a", 0, task) - sent("b", 1, task)).norm())
    assert apart > 10 * upload.sensitivity_bound
    noise = sent("c", 0, replace(task, update=replace(upload, noise=Gaussian(1.0)))).std()
    assert noise > apart


@pytest.mark.parametrize("multiplier", [0.5, 3.0])
def test_the_noise_of_an_upload_is_no_more_than_that_where_rounding_moves_nothing(
    tmp_path: Path, multiplier: float
) -> None:
    """The clip is of the update itself, and the noise is for all that is inside."""
    upload = UpdateRelease(
        clip=Flat(1e-3), noise=Gaussian(multiplier), sensitivity_bound=2e-3, protects="client"
    )
    sent = work(
        site(tmp_path, network(200)),
        replace(PLAIN, update=upload, samples=None),
        start(network(200)),
    ).update
    assert sent is not None
    assert float(sent.std()) == pytest.approx(2e-3 * multiplier, rel=0.1)


class Mixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(0))


def test_a_metric_of_a_model_that_mixes_samples_is_refused(tmp_path: Path) -> None:
    """One sample would move what all the others count with."""
    asked = replace(PRIVATE, steps=0, samples=None, query=MetricQuery(1.0, 2, 0, 4.0, 0.0))
    with pytest.raises(DpflError, match="mixes the samples"):
        work(site(tmp_path, Mixing()), asked, start(Mixing()))


def test_the_noise_covers_the_difference_of_a_clipped_model_to_a_long_one(tmp_path: Path) -> None:
    """Two models inside the clip are twice its level apart; so far from where they began, float32
    knows neither.
    """
    upload = UpdateRelease(
        clip=ModelClip(1.0), noise=Gaussian(1.0), sensitivity_bound=2.0, protects="client"
    )
    began = torch.full((SIZE,), 1e6)
    reply = work(site(tmp_path), replace(PLAIN, update=upload, samples=None), began)
    assert reply.update is not None
    assert float((reply.update + began).std()) > 2.0 + 2.0**-22 * float(began.norm())


def test_two_runs_with_one_seed_on_one_ledger_never_share_their_noise(tmp_path: Path) -> None:
    empty = replace(PRIVATE, samples=replace(SAMPLES, sampling=Poisson(1e-9)), steps=1)
    first = work(site(tmp_path, run="first"), empty).update
    second = work(site(tmp_path, run="second"), empty).update
    assert first is not None
    assert second is not None
    correlation = torch.corrcoef(torch.stack([first, second]))[0, 1]
    assert abs(float(correlation)) < 0.5
    assert sum(spent(tmp_path).values()) == 2


def test_a_task_that_is_replayed_gives_the_same_update_and_is_debited_once(tmp_path: Path) -> None:
    first, again = work(site(tmp_path)), work(site(tmp_path))
    assert torch.equal(first.update, again.update)
    assert spent(tmp_path) == {EVENT: 2}


def test_a_replay_gives_the_same_update_even_after_another_run_used_the_ledger(
    tmp_path: Path,
) -> None:
    first = work(site(tmp_path, run="first"))
    work(site(tmp_path, run="second"))
    assert torch.equal(work(site(tmp_path, run="first")).update, first.update)
    assert spent(tmp_path) == {EVENT: 4}


@pytest.mark.parametrize(
    ("task", "moved"),
    [
        (replace(PRIVATE, round=4), 0.0),
        (replace(PRIVATE, steps=3), 0.0),
        (replace(PRIVATE, local=LocalTraining(SGD(0.25))), 0.0),
        (replace(PRIVATE, samples=replace(SAMPLES, clip=Flat(2.0))), 0.0),
        (PRIVATE, 1e-6),
    ],
)
def test_another_round_task_or_model_is_another_debit(
    tmp_path: Path, task: ClientTask, moved: float
) -> None:
    work(site(tmp_path))
    work(site(tmp_path), task, start() + moved)
    assert sum(spent(tmp_path).values()) == 2 + task.steps


@pytest.mark.parametrize("part", ["x", "y"])
def test_a_changed_data_set_under_the_same_run_and_round_is_debited_again(
    tmp_path: Path, part: str
) -> None:
    work(site(tmp_path))
    changed = site(tmp_path)
    if part == "x":
        changed.data.x[40] += 1
    else:
        changed.data.y[40] = (changed.data.y[40] + 1) % CLASSES
    work(changed)
    assert spent(tmp_path) == {EVENT: 4}


def test_another_client_s_images_do_not_make_it_another_release(tmp_path: Path) -> None:
    work(site(tmp_path))
    changed = site(tmp_path)
    changed.data.x[0] += 1
    work(changed)
    assert spent(tmp_path) == {EVENT: 2}


def noise_only(where: ClientContext, vector: Tensor | None = None) -> Tensor:
    """What an (almost surely) empty batch releases: the noise itself."""
    update = work(
        where, replace(PRIVATE, samples=replace(SAMPLES, sampling=Poisson(1e-9)), steps=1), vector
    ).update
    assert update is not None
    return update


@pytest.mark.parametrize("what", ["model", "data"])
def test_a_second_release_under_the_same_run_and_round_has_noise_of_its_own(
    tmp_path: Path, what: str
) -> None:
    """Fault: noise seeds replayed. Whoever sees two sums with one noise subtracts it, and no
    epsilon holds.
    """
    first = noise_only(site(tmp_path))
    other = site(tmp_path)
    other.data.x[40] += 1 if what == "data" else 0
    second = noise_only(other, start() + (1e-3 if what == "model" else 0.0))
    assert sum(spent(tmp_path).values()) == 2
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.5


def test_under_system_entropy_every_answer_is_new_and_every_answer_is_debited(
    tmp_path: Path,
) -> None:
    first = work(site(tmp_path, randomness=SystemEntropy()))
    second = work(site(tmp_path, randomness=SystemEntropy()))
    assert not torch.equal(first.update, second.update)
    assert spent(tmp_path) == {EVENT: 4}


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("task", [PRIVATE, PLAIN])
def test_torch_s_own_random_state_neither_changes_nor_matters(
    tmp_path: Path, task: ClientTask
) -> None:
    vector, node = start(Random()), ClientRunner(site(tmp_path, Random()))
    torch.manual_seed(7)
    before = torch.get_rng_state()
    update = node.work(task, vector).update.clone()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    assert torch.equal(node.work(task, vector).update, update)
    node.close()


def test_a_plain_task_needs_no_ledger_and_repeats_by_its_key(tmp_path: Path) -> None:
    first = work(site(tmp_path), PLAIN)
    assert torch.equal(first.update, work(site(tmp_path, run="second"), PLAIN).update)
    assert not torch.equal(first.update, work(site(tmp_path), replace(PLAIN, round=4)).update)
    assert not list(tmp_path.iterdir())


def raw(folder: Path) -> Tensor:
    update = work(site(folder), PLAIN).update
    assert update is not None
    return update


@pytest.mark.parametrize("share", [0.1, 10.0])
def test_difference_clipping_bounds_the_update_and_keeps_its_direction(
    tmp_path: Path, share: float
) -> None:
    unclipped = raw(tmp_path)
    level = share * float(unclipped.norm())
    reply = work(site(tmp_path), replace(PLAIN, clients=Release(clip=Flat(level))))
    assert reply.inside == (share > 1)
    assert float(reply.update.norm()) <= level
    assert torch.allclose(
        reply.update, min(1.0, share) * unclipped, atol=2e-5 * float(unclipped.abs().max())
    )


@pytest.mark.parametrize("share", [0.1, 10.0])
def test_model_clipping_bounds_the_client_s_model_and_not_its_update(
    tmp_path: Path, share: float
) -> None:
    trained = start() + raw(tmp_path)
    level = share * float(trained.norm())
    reply = work(site(tmp_path), replace(PLAIN, clients=Release(clip=ModelClip(level))))
    assert reply.inside == (share > 1)
    assert float((start() + reply.update).norm()) <= level * (1 + 1e-6)
    assert torch.allclose(start() + reply.update, min(1.0, share) * trained, atol=2e-5)


def test_per_layer_clipping_bounds_each_layer_and_the_whole(tmp_path: Path) -> None:
    unclipped, level = raw(tmp_path), 0.01
    update = work(site(tmp_path), replace(PLAIN, clients=Release(clip=PerLayer(level)))).update
    first = FEATURES * 8 + 8
    assert float(update.norm()) <= level
    for layer in (update[:first], update[first:]):
        assert float(layer.norm()) == pytest.approx(level / math.sqrt(2), rel=1e-4)
    assert float(unclipped.norm()) > level


@pytest.mark.parametrize("shared_by", [2, 4, 25])
def test_shared_noise_has_its_share_of_the_variance(tmp_path: Path, shared_by: int) -> None:
    wide = network(800)
    vector = start(wide)
    release = Release(FixedSize(1), Flat(0.5), Gaussian(2.0), shared_by=shared_by)
    quiet = replace(PLAIN, clients=replace(release, noise=None, shared_by=None))
    loud = replace(PLAIN, clients=release)
    noise = (
        work(site(tmp_path, wide), loud, vector).update
        - work(site(tmp_path, wide), quiet, vector).update
    )
    stated = 2.0 * 0.5 / math.sqrt(shared_by)
    assert float(noise.std()) == pytest.approx(stated, rel=5 / math.sqrt(2 * len(noise)))


def test_shared_noise_differs_between_clients_and_rounds(tmp_path: Path) -> None:
    release = Release(FixedSize(1), Flat(1e-9), Gaussian(1e9), shared_by=2)
    noises = [
        work(site(tmp_path), replace(PLAIN, clients=release, client=client, round=round)).update
        for client, round in ((0, 0), (1, 0), (0, 1))
    ]
    correlations = torch.corrcoef(torch.stack(noises)) - torch.eye(3)
    assert float(correlations.abs().max()) < 0.5


def test_without_shared_noise_a_client_level_upload_is_not_noised_at_the_client(
    tmp_path: Path,
) -> None:
    at_the_server = replace(PLAIN, clients=Release(FixedSize(1), Flat(1e6), Gaussian(5.0)))
    assert torch.equal(work(site(tmp_path), at_the_server).update, raw(tmp_path))


def test_an_unclipped_upload_is_the_difference_itself(tmp_path: Path) -> None:
    reply = work(site(tmp_path), replace(PLAIN, clients=Release(clip=NoClip())))
    assert reply.inside
    assert torch.equal(reply.update, raw(tmp_path))


def test_a_node_works_for_more_clients_than_it_keeps_ledgers_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpfl.client.debits.OPEN_LEDGERS", 1)
    node = ClientRunner(site(tmp_path))
    for round in range(2):
        for client in (0, 1):
            assert (
                node.work(replace(PRIVATE, client=client, round=round), start()).update is not None
            )
    node.close()
    assert spent(tmp_path, 0) == spent(tmp_path, 1) == {EVENT: 4}


@pytest.mark.parametrize("objective", [CrossEntropy(), Contrastive()])
def test_another_vector_beside_the_model_is_another_release_with_noise_of_its_own(
    tmp_path: Path, objective: Objective
) -> None:
    """A correction of the gradients, or the client's own last model."""
    upload = UpdateRelease(
        All(), Flat(1.0), Gaussian(1.0), sensitivity_bound=2.0, protects="client"
    )
    task = replace(PLAIN, update=upload, local=LocalTraining(SGD(0.5), objective=objective))
    node = ClientRunner(site(tmp_path))
    first, again, other = (
        node.work(task, start(), start() + moved).update for moved in (0.1, 0.1, 0.2)
    )
    node.close()
    assert torch.equal(first, again)
    assert spent(tmp_path) == {upload.event(1): 2}
    assert float((first - other).norm()) > 10, (
        "what is clipped is at most 2 apart, so the noise differs"
    )


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


def test_the_node_names_a_release_by_the_model_that_it_was_given(tmp_path: Path) -> None:
    """Fault: a digest that the server says. Two models under one name would share their noise, and
    their debit.
    """
    node, vector = ClientRunner(site(tmp_path)), start()
    first = node.work(PRIVATE, vector).update.clone()
    vector += 1e-3  # the same memory, as in a worker process
    second = node.work(PRIVATE, vector).update.clone()
    vector -= 1e-3
    vector.copy_(start())
    assert torch.equal(node.work(PRIVATE, vector).update, first)
    assert not torch.equal(first, second)
    assert spent(tmp_path) == {EVENT: 4}
    node.close()


def test_a_model_whose_bits_differ_has_another_digest_though_its_numbers_are_equal(
    tmp_path: Path,
) -> None:
    names, zeros = ReleaseNames(site(tmp_path)), torch.zeros(SIZE)
    assert names.model_digest(zeros) != names.model_digest(-zeros)
    assert names.model_digest(zeros) == names.model_digest(zeros.clone())


@pytest.mark.parametrize("width", [13, 200])
def test_what_a_sample_counts_with_in_a_metric_is_the_same_in_every_batch(
    tmp_path: Path, width: int
) -> None:
    """With weights of 1e9, where the last bit of a score decides the answer."""
    workspace = Workspace(site(tmp_path, network(width)))
    workspace.model.load(workspace.model.read() * 1e9)
    x, y, outcomes = workspace.context.data.x, workspace.context.data.y, outcomes_of(workspace)
    whole = outcomes(x, y, 4.0)
    for part in (slice(0, 1), slice(3, 6), slice(7, 48)):
        assert torch.equal(outcomes(x[part], y[part], 4.0), whole[part])


def test_a_node_says_how_units_were_computed(tmp_path: Path) -> None:
    for arithmetic in ("exact", "fast"):
        node = ClientRunner(site(tmp_path / arithmetic, arithmetic=arithmetic))
        assert node.arithmetic == ""
        node.work(PRIVATE, start())
        assert node.arithmetic.startswith(arithmetic)
        node.close()


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
        fewer = with_rows(where, torch.arange(30), torch.arange(31, 60), declared=(29, 29))
        assert work(fewer, task).update is not None


def test_a_batch_of_most_models_may_be_larger_than_one_of_cancelling_products(
    tmp_path: Path,
) -> None:
    context = site(tmp_path)
    gradients, empty = (
        Workspace(context).gradients(SAMPLES),
        (context.data.x[:0], context.data.y[:0]),
    )
    assert gradients.largest_batch(*empty, persons=False) > 180_000
    assert gradients.largest_batch(*empty, persons=True) < 17_000


@pytest.mark.parametrize("scale", [1.0, 1e9, 1e30])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38, -0.0])
def test_one_unit_moves_an_answer_by_its_bound_at_most(
    tmp_path: Path, scale: float, value: float
) -> None:
    """Metrics, means and scales of columns, of a sample and of a person, with weights that a server
    chose.
    """
    workspace = Workspace(site(tmp_path, network(17)))
    workspace.model.load(workspace.model.read() * scale)
    x, y = 3 * workspace.context.data.x, workspace.context.data.y
    rows, persons = torch.arange(IMAGES), torch.arange(IMAGES) // 3
    outcomes = outcomes_of(workspace)
    x[7] = value
    surveys = (
        MetricQuery(1.0, 2, 0, 4.0, 0.0),
        MeanQuery(1.0),
        ColumnQuery(1.0, FEATURES, (0, 1, 2), ((6, 10), (7, 3))),
    )
    for survey in surveys:
        for by, numbers in ((None, rows), (persons, persons)):
            kept = rows[numbers != numbers[7]]
            sums = [
                survey.exact_sum(
                    ClientDataset(
                        x,
                        y,
                        some,
                        30,
                        None if by is None else UnitGroups.of(some, by),
                        CLASSES,
                        outcomes,
                    )
                )
                for some in (rows, kept)
            ]
            assert float((sums[0] - sums[1]).norm()) <= survey.sensitivity(FEATURES)
