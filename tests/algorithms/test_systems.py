"""Every system runs, learns where its noise lets it, stays inside epsilon, and says truthfully what
it cost.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting as dp
import pytest
import torch
from torch import Tensor, nn

import dpfl
from dpfl.algorithms import (
    ALGORITHMS,
    Algorithm,
    ce_fedavg,
    dp_fedavg,
    dp_scaffold,
    fedavg,
    fedavg_dp,
    fedprox,
    from_name,
    ldp_fl,
    moon,
    pe_dpfl,
    scaffold,
)
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.privacy import accountant
from tests.conftest import StopsAfter, ledger_of

Train = Callable[..., dpfl.Result]
CHANCE = 0.1


UNPROTECTED = {
    "fedavg": fedavg(tau=5),
    "fedavg, momentum": fedavg(tau=5, optimiser="momentum", rate=0.02),
    "fedavg, adam": fedavg(tau=5, optimiser="adam", rate=0.01),
    "fedavg, a cohort": fedavg(tau=5, cohort=2, weights="uniform"),
    "fedavg, server momentum": fedavg(tau=5, server_momentum=0.5, server_rate=0.7),
    "ce-fedavg, difference": ce_fedavg(tau=8, clip=2.0),
    "ce-fedavg, model": ce_fedavg(tau=8, clip=8.0, clipping="model"),
    "fedprox": fedprox(tau=5, prox=0.1),
    "moon": moon(tau=5),
    "moon, a cohort": moon(tau=5, cohort=2, mu=5.0),
    "scaffold": scaffold(tau=5),
    "scaffold, a cohort": scaffold(tau=5, cohort=2),
}


@pytest.mark.parametrize("name", UNPROTECTED)
def test_a_system_without_noise_learns_and_says_that_its_epsilon_is_unbounded(
    train: Train, federation: Federation, name: str
) -> None:
    result = train(federation, UNPROTECTED[name], rounds=8)
    assert result.accuracy > 0.6
    statement = result.privacy
    assert statement.unit == "none"
    assert statement.proven == math.inf
    assert statement.to_dict()["proven"] == "unbounded"
    assert statement.claimed is None
    assert statement.unaccounted == ("every client's update, without noise",)
    assert not list((result.folder / "ledger").iterdir())
    assert "unbounded" in str(statement)


AT_THE_SAMPLE = {
    "sgd": fedavg_dp(tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=1.0),
    "momentum": fedavg_dp(
        tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=0.2, optimiser="momentum"
    ),
    "adam": fedavg_dp(tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=0.01, optimiser="adam"),
    "adagrad": fedavg_dp(
        tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=0.02, optimiser="adagrad"
    ),
    "per-layer": fedavg_dp(
        tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=1.0, clipping="per-layer"
    ),
    "server momentum": fedavg_dp(
        tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=0.5, server_momentum=0.5
    ),
    "fedprox": fedprox(tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=1.0, prox=0.1),
    "dp-scaffold": dp_scaffold(tau=3, sampling_rate=0.2, noise_multiplier=0.6, rate=0.3),
}


@pytest.mark.parametrize("name", AT_THE_SAMPLE)
def test_fedavg_dp_learns_and_states_its_epsilon_for_one_sample(
    train: Train, federation: Federation, name: str
) -> None:
    result = train(federation, AT_THE_SAMPLE[name], rounds=8, accountant="rdp")
    assert result.accuracy > 0.4
    event = dp.PoissonSampledDpEvent(0.2, dp.GaussianDpEvent(0.6))
    statement = result.privacy
    assert ledger_of(result, "client-00000") == ledger_of(result, "client-00003") == {event: 24}
    assert statement.unit == "sample"
    assert statement.neighbours == "add/remove one"
    assert statement.accountant == "rdp"
    assert statement.adversary.startswith("the server, other clients and the public")
    assert "secure aggregation" not in statement.adversary
    assert statement.proven == pytest.approx(accountant("rdp").epsilon({event: 24}, 1e-5))
    by = {"fedprox": None, "dp-scaffold": "rdp"}.get(name, "rdp-classic")
    assert statement.claimed == (by and pytest.approx(accountant(by).epsilon({event: 24}, 1e-5)))
    assert by is None or "RDP" in statement.claim
    assert statement.unaccounted == ()
    assert set(statement.per_client) == {f"client-{number:05d}" for number in range(4)}
    assert list(statement.releases.values()) == [24]


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_fedavg_dp_plans_noise_that_stays_inside_epsilon_and_uses_it_up(
    train: Train, federation: Federation, optimiser: str
) -> None:
    rate = {"sgd": 1.0, "adam": 0.01}[optimiser]
    result = train(
        federation,
        fedavg_dp(tau=2, sampling_rate=0.1, rate=rate, optimiser=optimiser),
        epsilon=8.0,
        rounds=8,
    )
    assert (result.rounds, result.iterations, result.stopped_by) == (8, 16, "rounds")
    assert result.privacy.accountant == "pld"
    assert 7.9 < result.privacy.proven <= 8.0
    assert result.accuracy > 0.25


AT_THE_CLIENT = {
    "flat": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8),
    "all clients": dp_fedavg(noise_multiplier=0.2, tau=8),
    "fixed-size": dp_fedavg(cohort=10, sampling="fixed-size", noise_multiplier=0.1, tau=8),
    "shared": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, noise="clients"),
    "per-layer": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, clipping="per-layer"),
    "quantile": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, clipping="quantile", clip=0.5),
    "public-median": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, clipping="public-median"),
    "weights by size": dp_fedavg(cohort=10, noise_multiplier=0.1, tau=8, weights="size"),
    "server momentum": dp_fedavg(
        cohort=10, noise_multiplier=0.1, tau=8, server_momentum=0.5, server_rate=0.5
    ),
}


@pytest.mark.parametrize("name", AT_THE_CLIENT)
def test_dp_fedavg_learns_where_its_noise_is_small_and_counts_every_round(
    train: Train, crowd: Federation, name: str
) -> None:
    result = train(crowd, AT_THE_CLIENT[name], rounds=8, accountant="rdp")
    assert result.accuracy > 3 * CHANCE
    assert sum(ledger_of(result, "federation").values()) == result.rounds == 8
    assert result.privacy.unit == "client"
    assert set(result.privacy.per_client) == {"every client"}
    assert not list((result.folder / "ledger").glob("client-*"))


STATEMENTS = {
    "poisson": (
        {},
        "add/remove one",
        "pld",
        dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0)),
    ),
    "fixed-size": (
        {"sampling": "fixed-size"},
        "replace one",
        "rdp",
        # One client replaced moves the sum by two norms, so half of the multiplier is left; and who
        # knows that it was not drawn itself knows that ten of nineteen were.
        dp.SampledWithoutReplacementDpEvent(19, 10, dp.GaussianDpEvent(1.0)),
    ),
    "all": ({"cohort": None}, "add/remove one", "pld", dp.GaussianDpEvent(2.0)),
    "quantile": (
        {"clipping": "quantile", "count_noise": 2.0},
        "add/remove one",
        "pld",
        dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0)),
    ),
    "shared": (
        {"noise": "clients"},
        "add/remove one",
        "pld",
        # One of the ten can subtract its own share: nine are left. What the paper claims is for all
        # ten.
        dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0 * math.sqrt(9 / 10))),
    ),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_dp_fedavg_states_unit_neighbours_adversary_and_both_epsilons(
    train: Train, crowd: Federation, name: str
) -> None:
    options, neighbours, by, event = STATEMENTS[name]
    algorithm = dp_fedavg(**({"cohort": 10, "noise_multiplier": 2.0, "tau": 1} | options))
    result = train(crowd, algorithm, rounds=3)
    statement = result.privacy
    assert ledger_of(result, "federation") == {event: 3}
    assert statement.unit == "client"
    assert statement.neighbours == neighbours
    assert statement.accountant == by
    assert statement.proven == pytest.approx(accountant(by).epsilon({event: 3}, 1e-5))
    shared = "missing shares" in statement.adversary
    assert shared == (name == "shared")
    stated = dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(2.0)) if shared else event
    assert statement.claimed == pytest.approx(accountant("rdp-classic").epsilon({stated: 3}, 1e-5))
    assert statement.claimed >= statement.proven
    drawn = any("whether it was drawn" in assumption for assumption in statement.assumptions)
    assert drawn == (name != "all"), "a member of a cohort knows that it is one"
    if not shared:
        assert "server is trusted" in statement.adversary
    else:
        assert any("0.632" in assumption for assumption in statement.assumptions), (
            "z / sqrt(P) of a single upload"
        )
        assert statement.adversary.startswith("any one other client")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling": "fixed-size"},
        {"noise": "clients"},
        {"clipping": "quantile", "count_noise": 9.0},
    ],
)
def test_dp_fedavg_plans_noise_that_stays_inside_epsilon(
    train: Train, crowd: Federation, options: dict[str, Any]
) -> None:
    result = train(
        crowd, dp_fedavg(cohort=5, tau=1, **options), rounds=4, epsilon=5.0, accountant="rdp"
    )
    assert 4.9 < result.privacy.proven <= 5.0
    assert result.rounds == 4


def test_a_client_level_run_that_goes_on_stops_at_the_last_affordable_round(
    train: Train, crowd: Federation
) -> None:
    result = train(
        crowd, dp_fedavg(cohort=5, tau=1, noise_multiplier=1.5), epsilon=4.0, accountant="rdp"
    )
    (event, count) = next(iter(ledger_of(result, "federation").items()))
    assert result.stopped_by == "epsilon"
    assert count == result.rounds
    assert result.privacy.proven <= 4.0 < accountant("rdp").epsilon({event: count + 1}, 1e-5)


def test_quantile_clipping_moves_its_level_towards_the_norms(
    train: Train, crowd: Federation
) -> None:
    options = {"cohort": 10, "noise_multiplier": 0.1, "tau": 4, "clipping": "quantile"}
    low = train(crowd, dp_fedavg(clip=1e-3, **options), rounds=6, accountant="rdp", out="low")
    high = train(crowd, dp_fedavg(clip=1e3, **options), rounds=6, accountant="rdp", out="high")
    levels = [row.clip for row in low.history]
    assert levels == sorted(levels)
    assert levels[-1] > 1.3e-3
    assert high.history[-1].clip < 0.8e3


def test_a_public_median_costs_nothing_and_is_found_anew_each_round(
    train: Train, crowd: Federation
) -> None:
    result = train(
        crowd, dp_fedavg(cohort=10, noise_multiplier=1.0, tau=4, clipping="public-median"), rounds=3
    )
    levels = [row.clip for row in result.history]
    assert len(set(levels)) == 3
    assert all(0 < level < 10 for level in levels)
    assert sum(ledger_of(result, "federation").values()) == 3


class Normalised(nn.Module):
    """A small residual network with batch statistics."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))
        self.last = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(torch.relu(x + self.second(x)))


def test_batch_norm_is_refused_at_sample_level_with_a_sentence_and_nothing_written(
    train: Train, federation: Federation, tmp_path: Path
) -> None:
    with pytest.raises(DpflError, match=r"BatchNorm1d.*GroupNorm"):
        train(federation, fedavg_dp(noise_multiplier=1.0), rounds=2, model=Normalised())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "algorithm",
    [
        fedavg(tau=4),
        dp_fedavg(noise_multiplier=0.1, tau=4),
        dp_fedavg(noise_multiplier=5.0, tau=2, clip=10.0),
    ],
)
def test_batch_norm_is_allowed_at_client_level_and_its_variances_stay_positive(
    train: Train, crowd: Federation, algorithm: Algorithm
) -> None:
    result = train(
        crowd,
        algorithm,
        rounds=5,
        model=Normalised(),
        accountant="rdp" if algorithm.unit == "client" else None,
    )
    statistics = {
        name: buffer for name, buffer in result.module.named_buffers() if "running" in name
    }
    fresh = dict(Normalised().named_buffers())
    assert len(statistics) == 4
    for name, buffer in statistics.items():
        assert not torch.equal(buffer, fresh[name]), f"{name} was averaged"
        assert torch.isfinite(buffer).all()
        if name.endswith("running_var"):
            assert float(buffer.min()) > 0
    assert math.isfinite(result.loss)
    if algorithm.unit == "none":
        assert result.accuracy > 0.5


def test_running_statistics_are_the_weighted_mean_of_the_clients(
    train: Train, federation: Federation
) -> None:
    """One round of one step: each client's running mean is 0.1 of its batch's mean, and the
    server's is their mean.
    """
    module = Normalised()
    with torch.no_grad():
        hidden = [module.first[1](federation.client(client)[0].flatten(1)) for client in range(4)]
    result = train(federation, fedavg(tau=1, batch_size=1000), rounds=1, model=Normalised())
    found = dict(result.module.named_buffers())["first.2.running_mean"]
    expected = 0.1 * torch.stack([batch.mean(0) for batch in hidden]).mean(0)
    assert torch.allclose(found, expected, atol=1e-5)


OPTIONS = [
    ("fedavg", "taw", "tau"),
    ("fedavg-dp", "noise_multiplyer", "noise_multiplier"),
    ("dp-fedavg", "cohorts", "cohort"),
    ("ce-fedavg", "cliping", "clipping"),
]


@pytest.mark.parametrize(("system", "wrong", "right"), OPTIONS)
def test_an_unknown_option_is_answered_with_the_nearest(
    system: str, wrong: str, right: str
) -> None:
    with pytest.raises(DpflError, match=f"{wrong!r}; did you mean {right!r}"):
        from_name(system, **{wrong: 1})


def test_an_unknown_system_is_answered_with_the_nearest() -> None:
    with pytest.raises(DpflError, match="did you mean 'fedavg-dp'"):
        from_name("fedavg-pd")


@pytest.mark.parametrize(
    ("system", "options", "nearest"),
    [
        ("dp-fedavg", {"clipping": "per_layer"}, "per-layer"),
        ("dp-fedavg", {"sampling": "poison"}, "poisson"),
        ("dp-fedavg", {"noise": "client", "cohort": 3}, "clients"),
        ("fedavg", {"weights": "sizes"}, "size"),
        ("ce-fedavg", {"clipping": "models"}, "model"),
        ("fedavg-dp", {"clipping": "flatt"}, "flat"),
    ],
)
def test_an_unknown_word_is_answered_with_the_nearest(
    system: str, options: dict[str, Any], nearest: str
) -> None:
    with pytest.raises(DpflError, match=f"did you mean {nearest!r}"):
        from_name(system, **options)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_name_alone_gives_the_system_with_its_defaults(name: str) -> None:
    algorithm = from_name(name)
    assert algorithm.name == name
    units = dict.fromkeys(("fedavg", "ce-fedavg", "fedprox", "moon", "scaffold"), "none")
    units |= dict.fromkeys(
        ("dp-fedavg", "dp-fedavg-wav", "ldp-fl", "nbafl", "pe-dpfl", "dp-ftrl", "dyn-dp-fedavg"),
        "client",
    )
    assert algorithm.unit == units.get(name, "sample")
    assert algorithm.variant == "sound"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: dp_fedavg(noise="clients", noise_multiplier=1.0), "cohort"),
        (
            lambda: dp_fedavg(noise="clients", cohort=4, weights="size", noise_multiplier=1.0),
            "uniform weights",
        ),
        (
            lambda: dp_fedavg(noise="clients", cohort=4, clipping="quantile", noise_multiplier=1.0),
            "server",
        ),
        (lambda: fedavg_dp(sampling_rate=0.0), "sampling rate"),
        (lambda: fedavg_dp(clip=0.0), "clip"),
        (lambda: fedavg_dp(noise_multiplier=0.0), "noise multiplier"),
        (lambda: fedavg(tau=0), "tau"),
        (lambda: ce_fedavg(rate=0.0), "learning rate"),
        (lambda: moon(temperature=0.0), "temperature"),
        (lambda: moon(mu=-1.0), "mu"),
        (lambda: moon(mu=math.nan), "mu"),
        (lambda: pe_dpfl(share=-0.5), "share"),
        (lambda: pe_dpfl(perturbation=-0.1), "deviation"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused_with_a_sentence(
    make: Callable[[], Algorithm], sentence: str
) -> None:
    with pytest.raises(DpflError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        (dp_fedavg(cohort=4, noise_multiplier=1.0, clipping="quantile"), "count_noise"),
        (dp_fedavg(cohort=2, noise_multiplier=1.0, clipping="public-median"), "public"),
        (dp_fedavg(cohort=99, noise_multiplier=1.0), "99"),
        (fedavg(cohort=99), "99"),
    ],
)
def test_what_would_fail_in_the_first_round_is_refused_before_anything_is_written(
    train: Train, federation: Federation, tmp_path: Path, algorithm: Algorithm, sentence: str
) -> None:
    with pytest.raises(DpflError, match=sentence):
        train(federation, algorithm, rounds=3)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("algorithm", [moon(), pe_dpfl(noise_multiplier=1.0)])
def test_a_model_without_a_last_linear_layer_is_refused_before_anything_is_written(
    train: Train, federation: Federation, tmp_path: Path, algorithm: Algorithm
) -> None:
    with pytest.raises(DpflError, match=r"end it with nn\.Linear"):
        train(
            federation,
            algorithm,
            rounds=1,
            model=nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.LogSoftmax(1)),
        )
    assert not (tmp_path / "run").exists()


def test_training_that_overflows_everywhere_is_an_error_and_not_a_finished_run(
    train: Train, federation: Federation
) -> None:
    with pytest.raises(DpflError):
        train(federation, fedavg(tau=3, rate=1e30), rounds=3)


def test_a_last_batch_of_one_image_does_not_lose_a_client_with_batch_norm(
    train: Train, federation: Federation
) -> None:
    """250 images in batches of 83: the fourth batch of an epoch has one image, for which BatchNorm
    has no variance.
    """
    result = train(federation, fedavg(tau=4, batch_size=83), rounds=2, model=Normalised())
    assert not result.lost


def test_ldp_fl_protects_whole_clients_from_their_own_ledgers(
    train: Train, crowd: Federation
) -> None:
    result = train(
        crowd, ldp_fl(noise_multiplier=0.02, clip=1.0, tau=8), rounds=6, accountant="rdp"
    )
    assert result.accuracy > 0.3
    statement = result.privacy
    assert statement.unit == "client"
    assert "the server" in statement.adversary
    assert len(statement.per_client) == 20
    assert ledger_of(result, "client-00003") == {dp.GaussianDpEvent(0.02): 6}
    assert statement.proven == pytest.approx(
        accountant("rdp").epsilon({dp.GaussianDpEvent(0.02): 6}, 1e-5)
    )


def test_pe_dpfl_states_what_ldp_fl_states(train: Train, crowd: Federation) -> None:
    options = {"noise_multiplier": 0.02, "clip": 1.0, "tau": 8}
    perturbed = train(crowd, pe_dpfl(**options), rounds=6, accountant="rdp")
    plain = train(crowd, ldp_fl(**options), rounds=6, accountant="rdp", out="plain")
    assert perturbed.accuracy > 0.3
    assert perturbed.model_sha256 != plain.model_sha256
    assert ledger_of(perturbed, "client-00003") == {dp.GaussianDpEvent(0.02): 6}
    assert perturbed.privacy.to_dict() == plain.privacy.to_dict()


def test_pe_dpfl_plans_noise_that_stays_inside_epsilon_and_resumes(
    train: Train, federation: Federation
) -> None:
    result = train(federation, pe_dpfl(), epsilon=3.0, rounds=3, accountant="rdp")
    assert result.rounds == 3
    assert 2.9 < result.privacy.proven <= 3.0
    with pytest.raises(KeyboardInterrupt):
        train(
            federation,
            pe_dpfl(),
            epsilon=3.0,
            rounds=3,
            accountant="rdp",
            out="broken",
            progress=StopsAfter(1),
        )
    resumed = train(
        federation, pe_dpfl(), epsilon=3.0, rounds=3, accountant="rdp", out="broken", resume=True
    )
    assert (resumed.model_sha256, resumed.privacy.proven) == (
        result.model_sha256,
        result.privacy.proven,
    )


def test_clients_that_are_drawn_cannot_pay_themselves(train: Train) -> None:
    drawn = dpfl.data.sample().split(clients=1000, how=dpfl.data.RandomClients(20), seed=0)
    with pytest.raises(DpflError, match="keep no ledgers"):
        train(drawn, ldp_fl(noise_multiplier=1.0), rounds=1)


def test_ldp_fl_stops_when_its_clients_have_nothing_left(train: Train, crowd: Federation) -> None:
    result = train(crowd, ldp_fl(noise_multiplier=5.0), epsilon=2.0, rounds=50, accountant="rdp")
    assert result.stopped_by == "epsilon"
    assert result.privacy.proven <= 2.0
    event = dp.GaussianDpEvent(5.0)
    assert accountant("rdp").epsilon({event: result.rounds + 1}, 1e-5) > 2.0


KEEPING = {
    "dp-scaffold": dp_scaffold(tau=2, noise_multiplier=1.0, rate=0.3),
    "scaffold": scaffold(tau=2, cohort=3),
    "moon": moon(tau=2, cohort=3, mu=5.0),
    "a contrast and noisy uploads": from_name(
        "custom", where="uploads", objective="contrastive", noise_multiplier=1.0
    ),
}


@pytest.mark.parametrize("algorithm", KEEPING.values(), ids=list(KEEPING))
def test_what_is_kept_for_clients_is_the_same_on_workers_and_after_a_resume(
    train: Train, federation: Federation, algorithm: Algorithm
) -> None:
    whole = train(federation, algorithm, rounds=5, accountant="rdp", delta=1e-5)
    assert (
        train(federation, algorithm, rounds=5, accountant="rdp", out="two", workers=2).model_sha256
        == whole.model_sha256
    )
    with pytest.raises(KeyboardInterrupt):
        train(
            federation, algorithm, rounds=5, accountant="rdp", out="broken", progress=StopsAfter(2)
        )
    resumed = train(federation, algorithm, rounds=5, accountant="rdp", out="broken", resume=True)
    assert resumed.model_sha256 == whole.model_sha256


def test_controls_need_single_updates_of_plain_sgd() -> None:
    private = dp_fedavg(noise_multiplier=1.0)
    with pytest.raises(DpflError, match="Control variates"):
        replace(private, controls=True)
    with pytest.raises(DpflError, match="Control variates"):
        replace(fedavg(optimiser="adam"), controls=True)


def test_moon_without_its_term_is_fedavg_and_with_it_is_not(
    train: Train, federation: Federation
) -> None:
    plain = train(federation, fedavg(tau=4), rounds=4)
    without = train(federation, moon(tau=4, mu=0.0), rounds=4, out="without")
    first = train(federation, moon(tau=4, mu=5.0), rounds=1, out="first")
    with_it = train(federation, moon(tau=4, mu=5.0), rounds=4, out="with")
    assert apart(without, plain) < 1e-5
    assert apart(with_it, plain) > 1e-3
    assert apart(first, train(federation, fedavg(tau=4), rounds=1, out="one")) < 1e-5, (
        "no last model, no pull"
    )


def apart(one: dpfl.Result, other: dpfl.Result) -> float:
    vectors = [
        torch.cat([p.detach().flatten() for p in result.module.parameters()])
        for result in (one, other)
    ]
    return float((vectors[0] - vectors[1]).abs().max())
