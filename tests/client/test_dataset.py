"""Persons at a node: what is drawn, what is moved by one of them, and what it answers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.descent.optimisers import SGD
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientReply, ClientTask, LocalTraining, SecureSumTerms
from dpfl.errors import DpflError
from dpfl.models import from_module
from dpfl.privacy import All, Flat, Gaussian, Keyed, Poisson, Release
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.privacy.mechanisms.clips.clip import PerLayer
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.tasks import MultiClass

INPUTS, CLASSES, LEVEL, DECLARED = 4, 3, 0.5, 10


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 5), nn.Tanh(), nn.Linear(5, CLASSES))


MODEL = from_module(module())


def site(
    x: Tensor,
    y: Tensor,
    persons: Tensor | None,
    rows_per_person: int | None = None,
    **options: Any,
) -> ClientContext:
    held = (torch.arange(len(x)),)
    return ClientContext(
        "test",
        MODEL,
        MultiClass(CLASSES),
        ClientDatasets(x, y, held, (DECLARED,), persons, rows_per_person),
        Keyed(0),
        **options,
    )


def rows(sizes: Sequence[int], seed: int = 0, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Of persons with so many rows; those of the last are `scale` times as large."""
    generator, count = torch.Generator().manual_seed(seed), sum(sizes)
    x, y = (
        torch.randn(count, INPUTS, generator=generator),
        torch.randint(0, CLASSES, (count,), generator=generator),
    )
    x[count - sizes[-1] :] *= scale
    return x, y, torch.repeat_interleave(torch.tensor(list(sizes)))


def worked(held: ClientContext, task: ClientTask) -> Tensor:
    node = ClientRunner(held)
    try:
        update = node.work(task, node.model.read()).update
        assert update is not None
        return update.clone()
    finally:
        node.close()


def answered(held: ClientContext, query: object) -> np.ndarray:
    node = ClientRunner(held)
    try:
        raw = node.work(
            ClientTask(0, 0, 0, LocalTraining(SGD(1.0)), Release(), query=query), node.model.read()
        ).raw  # type: ignore[arg-type]
        assert raw is not None
        return raw["answer"].astype(np.float64)
    finally:
        node.close()


STEP = ClientTask(0, 0, 1, LocalTraining(SGD(1.0)), Release(), Release(All(), Flat(LEVEL)))
others, scales = st.lists(st.sampled_from([1, 2, 5]), min_size=1, max_size=4), st.floats(1e-3, 1e6)


@settings(max_examples=40)
@given(
    others,
    st.sampled_from([1, 3, 50]),
    scales,
    st.integers(0, 9),
    st.sampled_from([Flat(LEVEL), PerLayer(LEVEL)]),
)
def test_removing_one_person_moves_a_step_by_the_level_at_most(
    held, gone, scale, seed, clip
) -> None:
    """Before the noise: the sum over persons is q n times the update of one step."""
    x, y, persons = rows([*held, gone], seed, scale)
    task = replace(STEP, samples=Release(All(), clip))
    kept = persons < len(held)
    moved = worked(site(x, y, persons), task) - worked(site(x[kept], y[kept], persons[kept]), task)
    assert float(moved.double().norm()) * DECLARED <= clip.clip_norm * (1 + 1e-4)


@settings(max_examples=15)
@given(others, st.sampled_from([1, 3, 50]), scales, st.integers(0, 9))
def test_haar_coefficients_of_a_person_are_bounded_as_those_of_a_sample(
    held, gone, scale, seed
) -> None:
    x, y, persons = rows([*held, gone], seed, scale)
    ends = torch.cumsum(torch.tensor([p.numel() for p in module().parameters()]), 0).tolist()
    clip = Release(All(), HaarClip(LEVEL), HaarNoise(1.0)).for_model(ends).clip
    task, kept = replace(STEP, samples=Release(All(), clip)), persons < len(held)
    moved = worked(site(x, y, persons), task) - worked(site(x[kept], y[kept], persons[kept]), task)
    assert float(clip.norms(moved[None] * DECLARED)) <= LEVEL * (1 + 1e-3)  # type: ignore[attr-defined]


@settings(max_examples=25)
@given(others, st.sampled_from([1, 3, 50]), scales, st.integers(0, 9))
def test_a_person_moves_answers_as_far_as_a_sample_may(held, gone, scale, seed) -> None:
    x, y, persons = rows([*held, gone], seed, scale)
    kept = persons < len(held)
    both = site(x, y, persons), site(x[kept], y[kept], persons[kept])
    for query, bound in (
        (MeanQuery(1e-9), INPUTS**0.5 / DECLARED),
        (ColumnQuery(1e-9, INPUTS, (0, 1), ((2, 4),)), 5**0.5 / DECLARED),
    ):
        one, other = (answered(held, query) for held in both)
        assert np.linalg.norm(one - other) <= bound * (1 + 1e-4)


def test_the_label_counts_of_persons_are_shares_of_their_rows() -> None:
    x, _, persons = rows([4, 1, 1])
    y = torch.tensor([0, 0, 1, 2, 2, 1])
    found = answered(site(x, y, persons), LabelQuery(None))
    assert found == pytest.approx(np.array([0.5, 1.25, 1.25]) / 3)


def test_the_mean_of_persons_is_the_mean_of_their_means() -> None:
    x, y, persons = rows([50, 1])
    found = answered(site(x, y, persons), MeanQuery(1e-9)) * DECLARED
    means = torch.stack([x[:50].mean(0), x[50]])
    bound = INPUTS**0.5 / means.norm(dim=1, keepdim=True)
    assert found == pytest.approx((means * bound.clamp(max=1)).sum(0).numpy(), abs=1e-5)


def test_one_row_a_person_is_a_sample_to_the_last_bit() -> None:
    x, y, _ = rows([1] * 40)
    for samples in (
        Release(Poisson(0.4), Flat(LEVEL), Gaussian(1.0)),
        Release(Poisson(0.4), PerLayer(LEVEL), Gaussian(1.0)),
    ):
        task = replace(STEP, steps=3, samples=samples)
        assert torch.equal(
            worked(site(x, y, None), task), worked(site(x, y, torch.arange(40)), task)
        )


def test_persons_are_drawn_whole_at_the_rate_and_divided_by_their_declared_number() -> None:
    """A pixel a person, the same in all of their rows: each comes whole or not at all, and as often
    as the rate says.
    """
    count = 60
    persons = torch.repeat_interleave(torch.tensor([1, 4, 9]).repeat(count // 3))
    x, y = 1e3 * torch.eye(count)[persons], torch.zeros(len(persons), dtype=torch.int64)
    flat = nn.Linear(count, 2, bias=False)
    nn.init.zeros_(flat.weight)
    held = ClientContext(
        "t",
        from_module(flat),
        MultiClass(2),
        ClientDatasets(x, y, (torch.arange(len(x)),), (count,), persons),
        Keyed(0),
    )
    node = ClientRunner(held)
    task = replace(STEP, samples=Release(Poisson(0.25), Flat(1.0)))
    updates = (
        node.work(replace(task, round=round), torch.zeros(2 * count)).update for round in range(400)
    )
    drawn = torch.stack([update[:count].clone() for update in updates])
    node.close()
    share = drawn / (0.5**0.5 / (0.25 * count))
    assert torch.allclose(share, share.round(), atol=1e-3), (
        "whole or not at all, and clipped as one"
    )
    assert share.round().unique().tolist() == [0.0, 1.0]
    often = share.round().sum(0)
    assert abs(float(often.mean()) - 100) < 5 * (400 * 0.25 * 0.75 / count) ** 0.5
    assert float(often.min()) > 100 - 5 * 75**0.5


def test_the_first_rows_of_a_person_count() -> None:
    x, y, persons = rows([3, 50])
    x[5:] = 1e9
    few = [0, 1, 3, 4]
    capped = worked(site(x, y, persons, rows_per_person=2), STEP)
    assert torch.equal(capped, worked(site(x[few], y[few], persons[few]), STEP))


def replied(held: ClientContext, task: ClientTask) -> ClientReply:
    node = ClientRunner(held)
    try:
        return node.work(task, node.model.read())
    finally:
        node.close()


def test_who_has_a_row_nine_times_counts_as_with_one() -> None:
    """In a slope that is paid for, and in a part of a secure sum."""
    x, y, _ = rows([1] * 6)
    each = torch.arange(6).repeat_interleave(9)
    both = site(x, y, torch.arange(6)), site(x[each], y[each], each)
    one, nine = (replied(held, replace(STEP, slope=True)).raw["slope"] for held in both)  # type: ignore[index]
    assert float(one) > 1e-3
    assert float(nine) == pytest.approx(float(one), rel=1e-3)
    release = Release(All(), Flat(LEVEL), Gaussian(1.0), noise_shares=NoiseShares(2))
    task = replace(STEP, samples=release, secure_sum=SecureSumTerms(1.0, 10.0, 3))
    one, nine = (release.integer_sum(10.0, 3).total(replied(held, task).numbers) for held in both)  # type: ignore[arg-type]
    assert np.abs(nine - one).max() < 1e-3, "the same noise"


def test_a_metric_is_of_those_that_are_kept_out_of_training() -> None:
    x, y, persons = rows([3, 1, 5, 2])
    query, kept = MetricQuery(1e-9, 2, 0, 4.0, 0.5), persons >= 2
    trained, evaluated = torch.nonzero(~kept)[:, 0], torch.nonzero(kept)[:, 0]

    def answer(data: ClientDatasets) -> np.ndarray:
        return answered(replace(site(x, y, persons), data=data), query)

    whole = ClientDatasets(x, y, (trained,), (DECLARED,), persons)
    split = replace(whole, evaluation_rows=(evaluated,), evaluation_sizes=(2,))
    alone = replace(whole, rows=(evaluated,), declared_sizes=(2,))
    assert answer(split) == pytest.approx(answer(alone))
    assert answer(split) != pytest.approx(answer(replace(whole, declared_sizes=(2,))))


def test_a_ledger_for_persons_needs_to_know_whose_rows_are_whose(tmp_path: Path) -> None:
    x, y, persons = rows([3, 2])
    for unit, whose in (("person", None), ("sample", persons)):
        with pytest.raises(DpflError, match="Ledgers and data have different units"):
            ClientRunner(
                site(x, y, whose, ledgers=ClientLedgers(tmp_path, ("one",), unit, ADD_REMOVE))
            )


def test_another_grouping_is_another_release(tmp_path: Path) -> None:
    """The same rows and task, other persons: paid for again, with noise of its own."""
    x, y, persons = rows([3, 2, 1])
    task = replace(STEP, samples=Release(Poisson(0.5), Flat(LEVEL), Gaussian(1.0)))
    spent = []
    for whose in (persons, persons, torch.arange(6) // 2):
        ledgers = ClientLedgers(tmp_path, ("one",), "person", ADD_REMOVE)
        worked(site(x, y, whose, ledgers=ledgers), task)
        spent.append(sum(ledgers.spending()[0].values()))
    assert spent == [1, 1, 2]
