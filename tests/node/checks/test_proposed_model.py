"""A proposed model is measured step by step, and no more of it is built than the policy needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpfl.data import Federation
from dpfl.node.checks.policy_checker import PolicyChecker
from dpfl.node.checks.proposed_model import ProposedModel
from dpfl.node.load_data import load_node_data
from dpfl.node.policy import read
from dpfl.protocol.proposal import Proposal
from dpfl.refusals import ProtocolError
from tests.node.loopback import PROPOSAL, SAMPLES, SIZE, new_node

WIDE = replace(PROPOSAL, options=(("hidden", 1_000_000),))
SCATTERED = replace(PROPOSAL, model="scattering-linear", options=())


@pytest.fixture
def data(tmp_path: Path) -> Federation:
    return load_node_data(read(new_node(tmp_path / "data")))


def refusal(folder: Path, proposal: Proposal, **allow: Any) -> str:
    """The word that a model is refused by; empty where it is accepted."""
    policy = read(new_node(folder / "b", allow=allow))
    try:
        PolicyChecker(policy, load_node_data(policy)).check_model(proposal, SAMPLES)
        return ""
    except ProtocolError as error:
        return str(error.reason)


def test_parameters_are_counted_without_their_values(data: Federation) -> None:
    assert ProposedModel.of(PROPOSAL, data).count_parameters() == SIZE
    assert ProposedModel.of(PROPOSAL, data).vector_size() == SIZE
    assert ProposedModel.of(WIDE, data).count_parameters() == 795 * 1_000_000 + 10


def test_features_of_a_row_are_counted(data: Federation) -> None:
    plain, scattered = (ProposedModel.of(one, data) for one in (PROPOSAL, SCATTERED))
    assert (plain.has_features, scattered.has_features) == (False, True)
    assert (plain.numbers_per_row, scattered.numbers_per_row) == (784, 3969)


def test_no_weights_exist_of_a_model_that_its_shape_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dpfl.node.checks.proposed_model.build_module",
        lambda *_: pytest.fail("its weights were made"),
    )
    assert refusal(tmp_path, WIDE) == "too-large"


def test_memory_is_refused_before_the_size_of_a_message(tmp_path: Path) -> None:
    little = {"models": ["scattering-linear"], "most_memory": 1 << 20, "most_bytes": 1 << 20}
    assert refusal(tmp_path, SCATTERED, **little | {"most_memory": 1 << 16}) == "too-much-memory"
    assert refusal(tmp_path / "more", SCATTERED, **little) == "too-large"


def test_options_that_a_model_does_not_have_are_no_model(tmp_path: Path) -> None:
    assert refusal(tmp_path, replace(PROPOSAL, options=(("odd", 1),))) == "model-not-allowed"
