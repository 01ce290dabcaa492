"""Every system's epsilon derived again from what an instrumented run did, with dp-accounting alone.

A run is watched: which rates were drawn with, how far clipped sums and uploads really move, what
noise was made. The events of each account follow from that and from the papers' own formulas for
what one unit moves; neither ledger nor release is asked.
"""

import math
from collections import Counter
from functools import cache
from itertools import pairwise

import dp_accounting as dp
import numpy as np
import pytest
import torch
from dp_accounting import pld, rdp

import dpfl
from dpfl.data import Federation
from dpfl.models.architectures import build_centred_linear
from dpfl.privacy import FixedCohort, FixedSize, Poisson
from tests.run.instruments import instrumented

DELTA, CLIENTS, SIZE, FEATURES, CLASSES, ROUNDS = 1e-5, 4, 60, 16, 3, 3
Z, CLIP, RATE = 1.3, 1e-3, 0.2
"""A clip that every gradient and every update exceeds."""


def federation():
    rng = torch.Generator().manual_seed(0)
    parts = [
        (
            torch.randn(SIZE, FEATURES, generator=rng),
            torch.randint(0, CLASSES, (SIZE,), generator=rng),
        )
        for _ in range(4)
    ]
    return Federation.from_tensors(parts, test=parts[0])


def observed(tmp_path, algorithm, model=None):
    module = model or torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES))
    with instrumented() as log:
        budget = dpfl.Budget(delta=DELTA, rounds=ROUNDS)
        result = dpfl.train(
            module,
            federation(),
            algorithm,
            budget,
            evaluation=dpfl.Evaluation(every=ROUNDS),
            execution=dpfl.Execution(out=tmp_path / "run"),
        )
    return log, result


def epsilon(events, replace=False):
    return by_dp_accounting(frozenset(events.items()), replace)


@cache
def by_dp_accounting(found, replace):
    """The least of PLD and RDP; for Gaussian events alone what it has in closed form."""
    events = dict(found)
    if all(isinstance(event, dp.GaussianDpEvent) for event in events):
        inverse = sum(count / event.noise_multiplier**2 for event, count in events.items())
        return dp.get_epsilon_gaussian(1 / math.sqrt(inverse), DELTA)
    relation = (
        dp.NeighboringRelation.REPLACE_ONE if replace else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    accountants = [rdp.RdpAccountant(neighboring_relation=relation)]
    if not replace:
        accountants.append(pld.PLDAccountant(relation, value_discretization_interval=1e-4))
    for accountant in accountants:
        for event, count in events.items():
            accountant.compose(event, count)
    return min(accountant.get_epsilon(DELTA) for accountant in accountants)


def steps_of(log, client, norm=lambda moved: float(moved.norm())):
    """draw, sum and noise, step after step: the sampled Gaussian events of a client.

    No unit was seen to move a sum by more than its clip's level, and some moved it by that.
    """
    events, reached = Counter(), []
    seen = [
        (what, value) for what, value in log.of_client(client) if what in ("draw", "sum", "noise")
    ]
    for number in range(0, len(seen), 3):
        (first, (sampling, population, _)), (second, (clip, moved)), (third, deviation) = seen[
            number : number + 3
        ]
        assert (first, second, third, population) == ("draw", "sum", "noise", SIZE)
        assert isinstance(sampling, Poisson)
        reached += [norm(one) / clip.clip_norm for one in moved]
        events[
            dp.PoissonSampledDpEvent(sampling.rate, dp.GaussianDpEvent(deviation / clip.clip_norm))
        ] += 1
    assert 0.9999 <= max(reached) <= 1
    return events


def assert_each(result, events_of, rounding=0.0):
    """Noise that also covers `rounding`, a share of what is counted, proves less than is stated,
    and never more.
    """
    stated = list(result.privacy.per_client.values())
    assert len(stated) == CLIENTS
    for client, figure in enumerate(stated):
        derived = epsilon(events_of(client))
        assert derived <= figure * (1 + 1e-6)
        assert derived >= figure * (1 - 1e-6 - rounding)


GIVEN = {"noise_multiplier": Z, "clip": CLIP, "sampling_rate": RATE}
STEPS = {
    "fedavg-dp": dpfl.algorithms.fedavg_dp(tau=2, **GIVEN),
    "dp-scaffold": dpfl.algorithms.dp_scaffold(tau=2, **GIVEN),
    "custom, prox": dpfl.algorithms.custom(prox=0.1, tau=2, **GIVEN),
    "auto": dpfl.algorithms.auto(tau=2, **GIVEN),
    "dyn-dp-sgd": dpfl.algorithms.dyn_dp_sgd(tau=2, **GIVEN),
    "ali-dpfl": dpfl.algorithms.ali_dpfl(mu=1.0, gamma=1e-5, **GIVEN),
    "als-dpfl": dpfl.algorithms.als_dpfl(**GIVEN),
}


@pytest.mark.parametrize("name", STEPS)
def test_noise_in_steps(name, tmp_path):
    """What is proven is what was used, or more where tau follows what is released."""
    log, result = observed(tmp_path, STEPS[name])
    events = [steps_of(log, client) for client in range(CLIENTS)]
    made = [epsilon(found) for found in events]
    assert sum(events[0].values()) == result.iterations
    assert result.privacy.used == pytest.approx(max(made), rel=1e-6)
    if STEPS[name].steps.adaptive:
        assert result.privacy.proven >= max(made) * (1 - 1e-6)
    else:
        assert list(result.privacy.per_client.values()) == pytest.approx(made, rel=1e-6)


def test_a_clip_that_follows_has_noise_of_at_least_what_is_counted(tmp_path):
    log, result = observed(tmp_path, dpfl.algorithms.adap_dp_fl(tau=2, **GIVEN))
    for client, stated in enumerate(result.privacy.per_client.values()):
        assert epsilon(steps_of(log, client)) <= stated * (1 + 1e-6)


def haar(vector):
    """Means and half-differences of halves, the coarsest last, over the next power of two; and the
    paper's weights.
    """
    padded = np.zeros(2 ** math.ceil(math.log2(len(vector))))
    padded[: len(vector)] = vector
    found, level, now = [], 1, padded
    while len(now) > 1:
        found += [(2**level) * (a - b) / 2 for a, b in zip(now[::2], now[1::2], strict=True)]
        now, level = (now[::2] + now[1::2]) / 2, level + 1
    return np.array([*found, len(padded) * now[0]])


def test_noise_on_haar_coefficients(tmp_path):
    log, result = observed(tmp_path, dpfl.algorithms.dp_sgd_wav(tau=2, **GIVEN))
    assert_each(
        result,
        lambda client: steps_of(
            log, client, lambda moved: float(np.linalg.norm(haar(moved.double().numpy())))
        ),
    )


def test_a_mean_that_is_paid_for(tmp_path):
    """One sample of norm sqrt(d) at most: its event is a Gaussian one beside those of the steps."""
    log, result = observed(
        tmp_path, dpfl.algorithms.auto(**GIVEN), build_centred_linear((FEATURES,), CLASSES)
    )

    def events(client):
        (_, deviation), *rest = [
            (what, value)
            for what, value in log.of_client(client)
            if what in ("draw", "sum", "noise")
        ]
        log_of_steps = type(log)([("client", client), *rest])
        return steps_of(log_of_steps, client) + Counter(
            {dp.GaussianDpEvent(deviation / math.sqrt(FEATURES)): 1}
        )

    assert_each(result, events)


def uploads(log, client, moves):
    return Counter(
        dp.GaussianDpEvent(deviation / moves)
        for what, deviation in log.of_client(client)
        if what == "noise"
    )


@pytest.mark.parametrize(
    ("algorithm", "moves"),
    [
        (dpfl.algorithms.ldp_fl(clip=CLIP, noise_multiplier=Z), 2 * CLIP),
        (dpfl.algorithms.nbafl(clip=CLIP, noise_multiplier=Z), 2 * CLIP),
        (dpfl.algorithms.custom(where="uploads", clip=CLIP, noise_multiplier=Z), 2 * CLIP),
    ],
    ids=["ldp-fl", "nbafl", "custom"],
)
def test_noise_on_uploads(algorithm, moves, tmp_path):
    """Whatever a client has, its clipped upload lies in a ball: two of them are twice its radius
    apart.
    """
    log, result = observed(tmp_path, algorithm)
    assert max(log.values("upload")) == pytest.approx(moves / 2, rel=4e-5)
    assert max(log.values("upload")) <= moves / 2
    assert_each(result, lambda client: uploads(log, client, moves), rounding=1e-3)


def test_hellinger_weights(tmp_path):
    """One step on b samples moves an upload by 2 eta G / b at most; the histogram has noise for one
    count.
    """
    batch, rate = 10, 0.05
    log, result = observed(
        tmp_path,
        dpfl.algorithms.hw_dpfl(clip=CLIP, rate=rate, batch_size=batch, noise_multiplier=Z),
    )

    def events(client):
        (histogram,) = [value for what, value in log.of_client(client) if what == "histogram"]
        return uploads(log, client, 2 * rate * CLIP / batch) + Counter(
            {dp.GaussianDpEvent(round(histogram, 6)): 1}
        )

    assert_each(result, events, rounding=0.1)


def test_noise_on_the_sum_of_a_round(tmp_path):
    log, result = observed(
        tmp_path, dpfl.algorithms.dp_fedavg(cohort=2, clip=CLIP, noise_multiplier=Z)
    )
    assert {
        population
        for sampling, population, _ in log.values("draw")
        if isinstance(sampling, Poisson)
    } == {CLIENTS}
    events = Counter(
        dp.PoissonSampledDpEvent(2 / CLIENTS, dp.GaussianDpEvent(deviation / CLIP))
        for deviation in log.values("noise")
    )
    assert sum(events.values()) == ROUNDS
    assert max(log.values("upload")) <= CLIP
    assert result.privacy.proven == pytest.approx(epsilon(events), rel=1e-6)


def test_a_cohort_of_fixed_size(tmp_path):
    """Replacing one moves the sum by 2 C; who was not drawn knows that all of the cohort are among
    the others.
    """
    algorithm = dpfl.algorithms.dp_fedavg(
        cohort=2, sampling="fixed-size", clip=CLIP, noise_multiplier=4.0
    )
    log, result = observed(tmp_path, algorithm)
    assert all(
        isinstance(sampling, FixedCohort)
        for sampling, *_ in log.values("draw")
        if isinstance(sampling, FixedSize)
    )
    events = Counter(
        dp.SampledWithoutReplacementDpEvent(
            CLIENTS - 1, 2, dp.GaussianDpEvent(deviation / (2 * CLIP))
        )
        for deviation in log.values("noise")
    )
    assert result.privacy.proven == pytest.approx(epsilon(events, replace=True), rel=1e-6)


def test_noise_that_clients_share(tmp_path):
    """Each of four adds a quarter of the variance; one of them can subtract its own."""
    log, result = observed(
        tmp_path,
        dpfl.algorithms.dp_fedavg(cohort=4, noise="clients", clip=CLIP, noise_multiplier=Z),
    )
    shares = [deviation for deviation in log.values("noise") if deviation]
    whole = math.sqrt(3 * shares[0] ** 2)
    assert set(np.round(np.array(shares) / shares[0], 9)) == {1.0}
    assert result.privacy.proven == pytest.approx(
        epsilon({dp.GaussianDpEvent(whole / CLIP): ROUNDS}), rel=1e-6
    )


@pytest.mark.parametrize("name", ["dyn-dp-fedavg", "dp-fedavg-wav"])
def test_noise_on_sums_by_a_plan_and_on_coefficients(name, tmp_path):
    made = {
        "dyn-dp-fedavg": dpfl.algorithms.dyn_dp_fedavg,
        "dp-fedavg-wav": dpfl.algorithms.dp_fedavg_wav,
    }[name]
    log, result = observed(tmp_path, made(cohort=3, clip=CLIP, noise_multiplier=Z))
    events = Counter(
        dp.PoissonSampledDpEvent(3 / CLIENTS, dp.GaussianDpEvent(deviation / clip.clip_norm))
        for deviation, clip in zip(log.values("noise"), _levels(log), strict=True)
    )
    assert result.privacy.proven == pytest.approx(epsilon(events), rel=1e-6)


def _levels(log):
    """The clip of each round, from the uploads of it."""
    found, last = [], None
    for what, value in log.entries:
        if what == "clip":
            last = value
        elif what == "noise":
            assert last is not None, "nobody was drawn in this round"
            found.append(last)
            last = None
    return found


def test_noise_that_is_taken_back(tmp_path):
    """C has 1, 1/2, 3/8, ... on its diagonals, as many as there are turns; a unit takes part once
    in every `turns` rounds.
    """
    log, result = observed(
        tmp_path, dpfl.algorithms.dp_ftrl(cohort=2, clip=CLIP, noise_multiplier=Z)
    )
    turns, diagonals = CLIENTS // 2, [1.0, 0.5]
    root = sum(entry * np.eye(ROUNDS, k=-below) for below, entry in enumerate(diagonals[:turns]))
    sensitivity = CLIP * max(np.linalg.norm(root[:, first::turns]) for first in range(turns))
    assert all(a == b for a, b in pairwise(log.values("noise")))
    event = dp.GaussianDpEvent(log.values("noise")[0] / sensitivity)
    assert result.privacy.proven == pytest.approx(epsilon({event: 1}), rel=1e-6)
