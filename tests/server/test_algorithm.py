"""Copies of an algorithm for a unit, a model, a run, and other noise."""

import pytest

from dpfl.algorithms import (
    dp_fedavg,
    dp_ftrl,
    dyn_dp_sgd,
    fedavg,
    fedavg_dp,
    hw_dpfl,
    nbafl,
    scaffold,
)
from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from tests.server.rounds import flat


def test_a_person_takes_the_place_of_a_sample_in_steps_and_nowhere_else() -> None:
    algorithm = fedavg_dp(noise_multiplier=1.0)
    assert algorithm.for_unit("sample") is algorithm
    assert algorithm.for_unit("person").unit == "person"
    for other, words in ((dp_fedavg(noise_multiplier=1.0), "whole clients"), (fedavg(), "nobody")):
        with pytest.raises(DpflError, match=words):
            other.for_unit("person")
    with pytest.raises(DpflError, match="'row'"):
        algorithm.for_unit("row")


def test_what_owners_must_agree_to_follows_from_where_the_noise_is() -> None:
    steps, sums = (
        fedavg_dp(noise_multiplier=1.0).disclosure_rules,
        dp_fedavg(noise_multiplier=1.0).disclosure_rules,
    )
    assert (steps.trusted, sums.trusted) == (False, True)
    assert (steps.bare, fedavg().disclosure_rules.bare) == (False, True)
    shared = dp_fedavg(noise_multiplier=1.0).with_secure_sums(NoiseShares(3)).disclosure_rules
    assert (shared.trusted, shared.sums) == (False, True)


@pytest.mark.parametrize(
    ("algorithm", "place"),
    [
        (fedavg_dp(noise_multiplier=1.0), "samples"),
        (nbafl(noise_multiplier=1.0), "updates"),
        (dp_fedavg(noise_multiplier=1.0), "clients"),
    ],
    ids=["steps", "uploads", "sum"],
)
def test_other_noise_is_put_where_there_is_noise(algorithm, place) -> None:
    louder = algorithm.with_noise(3.0)
    assert getattr(louder, place).noise_multiplier == 3.0
    assert louder.placement is algorithm.placement
    assert algorithm.release.noise_multiplier == 1.0


def test_secure_noise_is_everywhere_or_refused() -> None:
    secure = fedavg_dp(noise_multiplier=1.0).with_secure_noise()
    assert secure.noise == "secure"
    with pytest.raises(DpflError, match="adds no noise"):
        fedavg().with_secure_noise()
    with pytest.raises(DpflError, match="secure form"):
        dp_ftrl(noise_multiplier=1.0).with_secure_noise()


def test_only_what_depends_on_the_rounds_asks_for_them() -> None:
    plain = fedavg_dp(noise_multiplier=1.0)
    assert plain.for_rounds(None, 4) is plain
    planned = dyn_dp_sgd(noise_multiplier=1.0)
    assert planned.for_rounds(20, 4).schedule.rounds == 20
    with pytest.raises(DpflError, match=r"budget\.rounds"):
        planned.for_rounds(None, 4)


def test_a_model_without_a_centre_or_scales_is_asked_for_none() -> None:
    algorithm = fedavg_dp(noise_multiplier=1.0).for_model(flat().layout)
    assert algorithm.centre is None
    assert algorithm.columns is None
    assert algorithm.queries == ()


def test_a_clients_declared_size_changes_only_noise_that_depends_on_it() -> None:
    same = scaffold()
    assert same.for_client_size(10) is same
    published = hw_dpfl(variant="published")
    few, many = (published.for_client_size(size) for size in (50, 5000))
    assert few.updates.by_samples is many.updates.by_samples is None
    assert few.updates.noise_multiplier != many.updates.noise_multiplier
    assert few.claim.formula is not None
