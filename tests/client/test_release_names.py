"""Two releases that differ in anything have two names, two debits and noise of their own."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dpfl.client.context import ClientContext
from dpfl.client.descent.objectives import Contrastive, CrossEntropy, Objective
from dpfl.client.descent.optimisers import SGD
from dpfl.client.release_names import ReleaseNames
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask, LocalTraining
from dpfl.privacy import (
    All,
    Flat,
    Gaussian,
    Poisson,
)
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from tests.client.small_client import (
    CLASSES,
    EVENT,
    PLAIN,
    PRIVATE,
    SAMPLES,
    SIZE,
    site,
    spent,
    start,
    work,
)


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
