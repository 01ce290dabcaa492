"""What clients say of slopes: raw, as published, and with noise that is paid for; against gradients
made one by one here.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpfl.client.context import ClientContext
from dpfl.client.dataset import ClientDatasets
from dpfl.client.descent.optimisers import SGD
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.runner import ClientRunner
from dpfl.client.task import (
    DIFFERENCES,
    LAST_STEP,
    RAW_VALUES,
    ClientReply,
    ClientTask,
    LocalTraining,
)
from dpfl.models import from_module
from dpfl.privacy import All, Flat, Gaussian, Keyed, Poisson, Release
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.ledger.client_ledgers import ClientLedgers
from dpfl.tasks import MultiClass

INPUTS, CLASSES, COUNT, RATE, LEVEL = 4, 3, 12, 0.7, 0.2
SILENT = Release(All(), Flat(LEVEL), Gaussian(1e-9))
TASK = ClientTask(0, 0, 2, LocalTraining(SGD(RATE)), Release(), SILENT)
RANDOM = torch.Generator().manual_seed(0)
X, Y = (
    3 * torch.randn(COUNT, INPUTS, generator=RANDOM),
    torch.randint(0, CLASSES, (COUNT,), generator=RANDOM),
)
START = torch.randn(INPUTS * CLASSES, generator=RANDOM)


def site(ledgers: ClientLedgers | None = None, rows: int = COUNT) -> ClientContext:
    flat = from_module(nn.Linear(INPUTS, CLASSES, bias=False))
    held, disclosure_rules = (torch.arange(rows),), DisclosureRules(raw=True)
    data = ClientDatasets(X, Y, held, (COUNT,))
    return ClientContext(
        "test",
        flat,
        MultiClass(CLASSES),
        data,
        Keyed(0),
        ledgers,
        disclosure_rules=disclosure_rules,
    )


def replied(
    task: ClientTask,
    vector: Tensor,
    correction: Tensor | None = None,
    held: ClientContext | None = None,
) -> ClientReply:
    node = ClientRunner(held or site())
    try:
        return node.work(task, vector, correction)
    finally:
        node.close()


def gradients(vector: Tensor) -> Tensor:
    """A row a sample."""
    found = []
    for x, y in zip(X, Y, strict=True):
        weight = vector.reshape(CLASSES, INPUTS).clone().requires_grad_()
        cross_entropy((x @ weight.T)[None], y[None]).backward()
        found.append(weight.grad.flatten())
    return torch.stack(found)


def clipped(rows: Tensor, level: float) -> Tensor:
    return (rows * (level / rows.norm(dim=1)).clamp(max=1.0)[:, None]).sum(0)


def loss(vector: Tensor) -> float:
    return float(cross_entropy(X @ vector.reshape(CLASSES, INPUTS).T, Y))


def test_a_paid_slope_is_of_gradients_that_are_clipped_at_ten_times_the_level_of_steps() -> None:
    reply = replied(replace(TASK, slope=True), START)
    own = START + reply.update
    assert (gradients(START).norm(dim=1) > LEVEL).all(), "steps clip every one of them"
    wanted = (clipped(gradients(own), 10 * LEVEL) - clipped(gradients(START), 10 * LEVEL)).norm()
    assert float(reply.raw["slope"]) == pytest.approx(float(wanted), rel=1e-3)
    noisy = replace(SILENT, noise=Gaussian(1.5))
    assert noisy.for_slopes.event(COUNT) == noisy.event(COUNT), "it costs what a step costs"


def test_a_look_compares_raw_gradients_at_the_clients_own_model_and_the_one_that_came() -> None:
    own = 1.5 * START
    raw = replied(replace(TASK, steps=0, raw=True), START, own).raw
    assert float(raw["gradients"]) == pytest.approx(
        float((gradients(own) - gradients(START)).mean(0).norm()), rel=1e-4
    )
    assert float(raw["distance"]) == pytest.approx(float((own - START).norm()), rel=1e-5)
    assert float(raw["losses"]) == pytest.approx(loss(own) - loss(START), rel=1e-4)


def test_the_last_step_is_from_the_model_before_it_on_its_own_batch() -> None:
    one, two = (
        replied(replace(TASK, raw=True, raw_values=(LAST_STEP,), steps=steps), START)
        for steps in (1, 2)
    )
    before, after = START + one.update, START + two.update
    assert float(two.raw["last_step"]) == pytest.approx(float((after - before).norm()), rel=1e-3)
    assert float(two.raw["last_losses"]) == pytest.approx(loss(after) - loss(before), abs=1e-5)


def test_a_noisy_sum_is_divided_by_the_constant_that_a_release_names() -> None:
    plain, constant = (
        replied(replace(TASK, steps=1, samples=replace(SILENT, divisor=to)), START).update
        for to in (None, 64.0)
    )
    assert torch.allclose(plain * COUNT, constant * 64, rtol=1e-4)


def test_raw_values_without_a_step_leave_no_ledger_that_promises_something(tmp_path: Path) -> None:
    ledgers = ClientLedgers(tmp_path, ("0",), "sample", ADD_REMOVE)
    look, own = replace(TASK, steps=0, raw=True), 1.5 * START
    assert (
        "holds no release without a guarantee" in replied(look, START, own, site(ledgers)).refusal
    )
    replied(TASK, START, held=site(ledgers))
    assert replied(look, START, own, site(ledgers)).refusal, "after steps with noise just as well"
    replied(replace(TASK, raw=True), START, held=site(ledgers))
    assert replied(look, START, own, site(ledgers)).raw is not None


def test_a_client_that_made_no_step_says_nothing_of_another_one() -> None:
    """Fault: a client all of whose batches were empty spoke of the last step of whoever was before
    it at the same worker.
    """
    held, rarely = (
        (torch.arange(COUNT), torch.arange(2)),
        Release(Poisson(1e-9), Flat(LEVEL), Gaussian(1e-9), divide_by_drawn=True),
    )
    node = ClientRunner(replace(site(), data=ClientDatasets(X, Y, held, (COUNT, 2))))
    first = node.work(
        replace(
            TASK, raw=True, raw_values=RAW_VALUES, samples=replace(SILENT, divide_by_drawn=True)
        ),
        START,
    )
    second = node.work(
        replace(TASK, client=1, raw=True, raw_values=RAW_VALUES, samples=rarely), START
    )
    node.close()
    assert float(first.raw["last_step"]) > 0
    assert (float(second.raw["last_step"]), float(second.raw["last_losses"])) == (0.0, 0.0)


def test_only_the_raw_values_that_are_asked_for_are_made_and_the_rest_is_the_same(
    tmp_path: Path,
) -> None:
    """The update has the same noise, which is drawn by the name of the release."""
    noisy, said = replace(TASK, raw=True, samples=replace(SILENT, noise=Gaussian(1.0))), {}
    for values in ((), (DIFFERENCES,), (LAST_STEP,), RAW_VALUES):
        ledgers = ClientLedgers(tmp_path / str(values), ("0",), "sample", ADD_REMOVE)
        ledgers.folder.mkdir()
        said[values] = replied(replace(noisy, raw_values=values), START, held=site(ledgers))
    names = {
        DIFFERENCES: {"losses", "gradients", "distance", "gradient"},
        LAST_STEP: {"last_step", "last_losses"},
    }
    for values, reply in said.items():
        assert set(reply.raw) == set().union(*(names[value] for value in values))
        assert torch.equal(reply.update, said[()].update)
    assert replied(replace(TASK, raw_values=RAW_VALUES), START).raw is None, (
        "none are, where they are not asked for at all"
    )


def test_the_masks_of_a_slope_are_drawn_by_the_node_alone() -> None:
    """Torch's own state is that of every new process: with it, a server knows all masks, and one
    unit moves all of them.
    """
    module = nn.Sequential(nn.Linear(INPUTS, 8), nn.Dropout(0.5), nn.Linear(8, CLASSES))
    held = replace(site(), model=from_module(module))
    vector = torch.randn(8 * (INPUTS + 1) + 9 * CLASSES, generator=torch.Generator().manual_seed(1))
    slopes, states = set(), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        slopes.add(float(replied(replace(TASK, slope=True), vector, held=held).raw["slope"]))
        states.append(torch.equal(torch.get_rng_state(), before))
    assert len(slopes) == 1
    assert all(states)
    other = replied(replace(TASK, slope=True, round=1), vector, held=held)
    assert float(other.raw["slope"]) not in slopes
