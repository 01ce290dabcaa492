"""Neighbours whose noisy values are the same: what published systems show besides, and that sound
ones show nothing.
"""

import pytest

from dpfl.algorithms import (
    ali_dpfl,
    als_dpfl,
    auto,
    custom,
    dp_fedavg,
    dp_fedavg_wav,
    dp_sgd_wav,
    hw_dpfl,
    ldp_fl,
)
from dpfl.audit import leaks
from dpfl.audit.games import GAMES
from dpfl.audit.subject import AuditSubject
from dpfl.client.training import ClientTraining
from dpfl.privacy import accountant
from dpfl.privacy.accounting.events import gaussian
from dpfl.server.algorithm import Algorithm
from tests.audit.systems import PRIVATE, SOUND, system


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_system_shows_nothing_but_what_follows_from_its_noisy_values(name: str) -> None:
    assert leaks(system(name, "sound")) == []


@pytest.mark.parametrize(("name", "variant"), PRIVATE)
def test_a_leak_is_found_exactly_where_a_system_names_one(name: str, variant: str) -> None:
    made = system(name, variant)
    assert bool(leaks(made)) == bool(made.leaks)


def test_ali_as_published_shows_mu_tau_and_the_sizes_of_batches() -> None:
    found = {leak.what: leak for leak in leaks(ali_dpfl("published")) or []}
    assert {"memory: mu", "tau", "raw of client 0: gradients", "update of client 0"} <= set(found)
    assert found["tau"].one != found["tau"].other
    # The same noise over ten samples and over nine.
    one, other = float(found["update of client 0"].one), float(found["update of client 0"].other)
    assert other / one == pytest.approx(10 / 9, rel=1e-4)


def test_the_code_of_ali_shows_losses_and_steps_and_no_sizes_of_batches() -> None:
    """What it takes for a slope is made of noisy steps, which are paid for; its Gamma is made of
    losses.
    """
    made = ali_dpfl("published", reading="code")
    found = {leak.what for leak in leaks(made, rounds=6) or []}
    assert {"memory: gamma", "raw of client 0: last_losses"} <= found
    assert "update of client 0" not in found, "its divisor is fixed"
    assert not {"memory: mu", "raw of client 0: last_step"} & found, (
        "a noisy step tells no more than it is paid for"
    )
    assert [leak.split(",")[0] for leak in made.leaks] == [
        "how long the last step of every client was",
        "losses without noise",
    ]


def test_als_as_published_shows_its_estimates_and_tau() -> None:
    found = {leak.what for leak in leaks(als_dpfl("published")) or []}
    assert {"memory: estimates", "tau"} <= found
    assert "update of client 0" not in found, "its divisor is fixed"


def test_hw_as_published_shows_the_histogram_and_the_weights() -> None:
    found = {leak.what for leak in leaks(hw_dpfl("published")) or []}
    assert {"raw of client 0: answer", "weights"} <= found


@pytest.mark.parametrize(
    "made",
    [
        dp_fedavg(clipping="quantile", noise_multiplier=1.0),
        dp_fedavg(clipping="public-median", noise_multiplier=1.0),
        dp_fedavg(noise="clients", cohort=3, noise_multiplier=1.0),
        custom(where="round", weights="similarity", noise_multiplier=1.0),
        ali_dpfl(mu="paid"),
        custom(where="steps", weights="similarity", steps="ali", noise_multiplier=1.0),
        custom(where="steps", controls=True, noise_multiplier=1.0),
        dp_sgd_wav(public_clip=True, noise_multiplier=1.0),
        dp_fedavg_wav(public_clip=True, noise_multiplier=1.0),
        dp_sgd_wav(cohort=3, noise_multiplier=1.0),
    ],
    ids=[
        *(
            "quantile",
            "public median",
            "shared",
            "trusted survey",
            "paid slope",
            "survey and ali",
            "controls",
        ),
        *("public clip of samples", "public clip of coefficients", "clients drawn"),
    ],
)
def test_own_systems_of_sound_parts_show_nothing(made: Algorithm) -> None:
    assert leaks(made) == []


def test_a_client_that_tells_whether_it_was_clipped_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = ClientTraining.update

    def telling(self: ClientTraining):
        update, _ = honest(self)
        difference = self.workspace.model.vector - self.vector
        return update, bool(difference.norm() <= self.task.update.clip.clip_norm)

    monkeypatch.setattr(ClientTraining, "update", telling)
    assert [leak.what for leak in leaks(system("ldp-fl", "sound")) or []] == ["inside of client 0"]
    assert ldp_fl().unit == "client"


def test_a_mean_that_costs_as_much_as_a_step_is_counted_beside_it() -> None:
    """At a rate of 1 both are the same event."""
    made = auto(sampling_rate=1.0, noise_multiplier=2.0, mean_noise=2.0, rate=1.0)
    assert GAMES["leaks"](AuditSubject(made)).proven == pytest.approx(
        accountant("pld").epsilon({gaussian(2.0): 2}, 1e-5)
    )
