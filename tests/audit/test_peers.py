"""The games on a function that is not ours: what Flower ships, where it is right and where it is
not (docs/peers.md).
"""

from __future__ import annotations

import importlib

import pytest

from tests.conftest import example


@pytest.fixture(scope="module", name="peers")
def _peers():
    peers = example("audit_peers")
    identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
    identity.run_id = identity.task_id = identity.node_id = 1
    yield peers
    identity.run_id = identity.task_id = identity.node_id = None


def test_noise_that_is_right_is_consistent_and_weights_that_it_is_not_for_refute_it(peers) -> None:
    said = peers.one_gaussian(1.0)
    assert 0.9 * said < peers.by_spread(peers.fixed_clipping([100] * 10)) < said
    assert peers.by_spread(peers.fixed_clipping([1000] + [10] * 9)) > 2 * said
    with pytest.raises(ValueError, match="equal client weights"):
        peers.fixed_clipping([1000] + [10] * 9, count_privacy=True)(True, False)


def test_a_member_of_secagg_plus_tells_both_halves_of_a_mask(peers) -> None:
    both = next(peers.flower_masks())
    assert both.verdict.startswith("**refuted**")
    assert float(both.measured.split()[-1]) < 1e-5
