"""The noise on the sum of a round: for the clip in use, and for whoever is missing."""

import math
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from dpfl import Budget
from dpfl.algorithms import dp_fedavg
from dpfl.client.task import ClientReply
from dpfl.models import FlatModel
from dpfl.privacy import Keyed, Ledger
from dpfl.privacy.accounting.calibration import MAX_RELEASES
from dpfl.privacy.accounting.events import ADD_REMOVE
from dpfl.privacy.mechanisms.noises.noise import gaussian_vector
from dpfl.server.aggregation.aggregate import release_name
from dpfl.server.coordinator import Coordinator
from dpfl.server.state import FederationFacts, RunState
from tests.server.rounds import CLIENTS, SIZE, coordinator, flat, good, nobody


def test_one_sum_with_more_noise_has_noise_of_its_own(tmp_path: Path) -> None:
    """Fault: one seed gave S + N in a run and S + 3 N in another, noise keyed by S alone: 2 S = 3
    (S + N) - (S + 3 N).
    """
    found = []
    for multiplier in (1.0, 3.0):
        run = coordinator(
            dp_fedavg(cohort=2, noise_multiplier=multiplier), tmp_path / str(multiplier)
        )
        run.aggregate(good(0, 1))
        found.append(2 * run.state.vector[: flat().layout.trainable])
    assert ((3 * found[0] - found[1]) / 2 - 3.0).abs().max() > 1.0


def test_fault_the_clip_level_moves_between_clipping_and_noising(tmp_path: Path) -> None:
    """The noise is for the level that the clients used; only the next round's order has the new
    one.
    """
    algorithm = dp_fedavg(
        cohort=2, noise_multiplier=1.0, clipping="quantile", clip=0.5, count_noise=1.0
    )
    run = coordinator(algorithm, tmp_path)
    request = run.next_request()
    assert {task.clients.clip.clip_norm for task in request.tasks} <= {0.5}
    key = Keyed(
        0, scope=release_name(algorithm.clients, run.state.vector, torch.zeros(SIZE).double(), 0)
    )
    run.aggregate(
        [ClientReply(client, torch.zeros(SIZE), inside=False) for client in range(CLIENTS)]
    )
    run.close_round(request.steps)
    drawn = gaussian_vector(SIZE, 1.0, key.generator("server noise", 0))
    multiplier = (1.0**-2 - (2 * 1.0) ** -2) ** -0.5
    trainable = slice(0, flat().layout.trainable)
    assert torch.allclose(
        run.state.vector[trainable], (multiplier * 0.5 * drawn / 2)[trainable], atol=1e-6
    )
    count = -0.5 * CLIENTS + 1.0 * key.generator("count noise", 0).standard_normal()
    fraction = min(max(count / 2 + 0.5, 0.0), 1.0)
    level = 0.5 * math.exp(-0.2 * (fraction - 0.5))
    assert level != 0.5
    assert run.state.clients.clip.clip_norm == pytest.approx(level)
    following = run.next_request()
    for _ in range(50):
        if following.tasks:
            break
        run.state.round += 1
        following = run.next_request()
    assert {task.clients.clip.clip_norm for task in following.tasks} == {
        run.state.clients.clip.clip_norm
    }


SHARES, LOUD = 8, 3.0
WIDE = FlatModel(nn.Linear(400, 40)).layout


def sum_with_shares(folder: Path, replies: list[ClientReply]) -> Tensor:
    """What comes out of a round in which clients add their shares to nothing at all: the noise of
    the sum.
    """
    algorithm = dp_fedavg(cohort=SHARES, noise_multiplier=LOUD, noise="clients")
    ledger = Ledger.open(folder / "federation.sqlite", "federation", "client", ADD_REMOVE)
    federated = FederationFacts("run", [10] * 20, WIDE, ledger=ledger)
    state = RunState(
        torch.zeros(WIDE.size), torch.zeros(WIDE.size), None, algorithm.clients, [MAX_RELEASES]
    )
    run = Coordinator(
        algorithm, Budget(rounds=9), federated, state, Keyed(0), nobody, lambda vector: 0.0
    )
    run.aggregate(replies)
    return run.state.vector * SHARES


def share(client: int) -> Tensor:
    release = dp_fedavg(cohort=SHARES, noise_multiplier=LOUD, noise="clients").clients
    return release.add_noise(
        torch.zeros(WIDE.size), Keyed(1).generator("client noise", 0, client), share=1 / SHARES
    )


SILENT = {
    "nobody is missing": [],
    "not finite": [ClientReply(6, torch.full((WIDE.size,), math.nan))],
    "infinite once": [ClientReply(7, share(7).index_fill(0, torch.tensor([3]), math.inf))],
    "mis-shaped": [
        ClientReply(5, torch.ones(WIDE.size + 1)),
        ClientReply(6, torch.ones(WIDE.size, 1)),
    ],
    "failed": [ClientReply(7, failure="its worker process died")],
    "refused": [
        ClientReply(4, refusal="no room"),
        ClientReply(5, refusal="no room"),
        ClientReply(6),
        ClientReply(7, failure="gone"),
    ],
    "all but one": [
        ClientReply(client, torch.full((WIDE.size,), math.inf)) for client in range(1, SHARES)
    ],
    "never drawn": None,
}


@pytest.mark.parametrize("silent", SILENT)
def test_fault_a_dropped_reply_whose_share_of_the_noise_is_counted_as_there(
    tmp_path: Path, silent: str
) -> None:
    """The variance of the noisy sum is that of all shares, whoever is missing: neither less, nor
    noise for nothing.
    """
    dropped = SILENT[silent]
    gone = {reply.client for reply in dropped} if dropped is not None else {6, 7}
    there = [ClientReply(client, share(client)) for client in range(SHARES) if client not in gone]
    found = sum_with_shares(tmp_path, [*there, *(dropped or [])])[: WIDE.trainable].double() / LOUD
    low, high = stats.chi2.interval(1 - 1e-6, WIDE.trainable)
    assert low <= float(found.square().sum()) <= high


@pytest.mark.parametrize("wrong", [-1, 1])
def test_the_test_of_shares_would_see_one_too_few_or_too_many(tmp_path: Path, wrong: int) -> None:
    low, high = stats.chi2.interval(1 - 1e-6, WIDE.trainable)
    one_off = WIDE.trainable * (1 + wrong / SHARES)
    assert not low <= one_off <= high
