"""Where the noise is, and whom it protects."""

from __future__ import annotations

import pytest

from dpfl.client.noise_placement import NoisePlacement, PlacedRelease
from dpfl.privacy.mechanisms.clips.clip import Flat
from dpfl.privacy.mechanisms.noises.noise import Gaussian
from dpfl.privacy.mechanisms.release import Release
from dpfl.privacy.mechanisms.sampling import All
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.units import NO_UNIT

PLAIN = Release(All(), Flat(1.0))
NOISY = Release(All(), Flat(1.0), Gaussian(1.0))


def update_release(protects: str, noise: Gaussian | None = Gaussian(1.0)) -> UpdateRelease:
    return UpdateRelease(All(), Flat(1.0), noise, sensitivity_bound=2.0, protects=protects)


@pytest.mark.parametrize(
    ("placed", "placement", "unit"),
    [
        (PlacedRelease.of(NOISY, None, PLAIN), NoisePlacement.EVERY_STEP, "person"),
        (
            PlacedRelease.of(PLAIN, update_release("sample"), PLAIN),
            NoisePlacement.CLIENT_UPDATE,
            "person",
        ),
        (
            PlacedRelease.of(None, update_release("client"), PLAIN),
            NoisePlacement.CLIENT_UPDATE,
            "client",
        ),
        (
            PlacedRelease.of(None, update_release("client", None), NOISY),
            NoisePlacement.ROUND_SUM,
            "client",
        ),
        (PlacedRelease.of(PLAIN, None, PLAIN), NoisePlacement.NONE, NO_UNIT),
    ],
)
def test_the_release_with_noise_says_whom_it_protects(
    placed: PlacedRelease, placement: NoisePlacement, unit: str
) -> None:
    assert (placed.placement, placed.unit("person")) == (placement, unit)
    assert placed.has_noise == (placed.release is not None) == (unit != NO_UNIT)


def test_a_release_is_given_for_its_own_place_only() -> None:
    placed = PlacedRelease.of(NOISY, None, PLAIN)
    assert placed.release_at(NoisePlacement.EVERY_STEP, NoisePlacement.ROUND_SUM) is NOISY
    assert placed.release_at(NoisePlacement.CLIENT_UPDATE) is None
    nowhere = PlacedRelease.of(None, None, PLAIN)
    assert nowhere.release_at(*NoisePlacement) is None


def test_every_release_with_noise_is_listed_in_the_order_of_the_noise() -> None:
    update = update_release("client")
    listed = PlacedRelease.list_all(NOISY, update, NOISY)
    assert [one.release for one in listed] == [NOISY, update, NOISY]
    assert listed[0] == PlacedRelease.of(NOISY, update, NOISY)
    assert PlacedRelease.list_all(None, None, PLAIN) == ()
