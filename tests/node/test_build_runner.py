"""The model and the runner of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpfl.node.load_data import schema_digest
from tests.node.loopback import (
    EVENT,
    PROPOSAL,
    RUN,
    STEPS,
    Open,
    join,
    work,
)  # fmt: skip
from tests.node.test_service import unmoved


def test_a_model_of_the_owner_s_own_has_the_owner_s_options(opened: Open) -> None:
    path = "tests.node.loopback:own_net"
    node = opened(allow={"own_models": {path: {"hidden": 3}}})
    unmoved(
        node, join(replace(PROPOSAL, model=path, options=(("hidden", 4),))), "model-not-allowed"
    )
    unmoved(
        node,
        join(replace(PROPOSAL, model="tests.node.loopback:vector", options=())),
        "model-not-allowed",
    )
    assert (
        node(join(replace(PROPOSAL, model=path, options=(("hidden", 3),)))).header["kind"]
        == "joined"
    )
    assert node(work(model=np.zeros(785 * 3 + 40, np.float32))).header["kind"] == "reply"


def test_a_node_whose_unit_is_a_person_trains_by_person_and_counts_persons(opened: Open) -> None:
    words = {
        "data": {"name": "randhie", "classes": None},
        "split": {"client": 1, "partition": "site"},
    }
    node = opened(limits={"unit": "person"}, allow={"models": ["linear"]}, **words)
    held = node.service.data
    proposal = replace(
        PROPOSAL,
        unit="person",
        model="linear",
        options=(),
        learning=held.task,
        shape=held.shape,
        schema=schema_digest(held),
    )
    unmoved(node, join(replace(proposal, unit="sample")), "other-unit")
    joined = node(join(proposal)).header
    assert joined["size"] == held.count_units("person")[0] < len(held.train)
    assert joined["schema"] == proposal.schema
    size = node.service._tasks._runner_of(RUN, proposal, joined["size"]).model.layout.size
    assert node(work(model=np.zeros(size, np.float32))).header["kind"] == "reply"
    assert node.spending() == {EVENT: STEPS}
