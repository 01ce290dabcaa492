"""Tasks over a wire: every one that a system gives comes out as it went in; what no system would
give is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dpfl
from dpfl.algorithms import ALGORITHMS, from_name
from dpfl.client.descent.objectives import CrossEntropy
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import ClientReply, ClientTask, LocalTraining
from dpfl.codec import canonical, digest_of, format_of
from dpfl.data import Federation
from dpfl.errors import DpflError
from dpfl.privacy import Flat, Gaussian, Poisson, Release
from dpfl.privacy.mechanisms.noises.noise import Uncalibrated
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.privacy.queries.query import PrivateQuery
from dpfl.protocol import task_messages
from dpfl.refusals import SENTENCES, ProtocolError, RefusalReason
from dpfl.tasks import Binary, Counts, MultiClass, MultiLabel, NextToken, Ordinal, Regression
from tests.conftest import MODEL
from tests.node.ordered import tasks_of

TASK = ClientTask(
    3,
    1,
    5,
    LocalTraining(SGD(0.1), 16, 0.5),
    Release(),
    Release(Poisson(0.1), Flat(1.0), Gaussian(1.1)),
    40,
    update=UpdateRelease(
        clip=Flat(1.0), noise=Gaussian(2.0), sensitivity_bound=2.0, protects="client"
    ),
    query=LabelQuery(3.0),
    slope=True,
)
OPTIONS: dict[str, dict[str, Any]] = {
    "hw-dpfl": {"batch_size": 32},
    "nbafl": {"samples": 250, "clients": 4, "rounds": 4, "exposures": 4, "clip": 6.0},
    "ali-dpfl": {"sampling_rate": 0.1, "noise_multiplier": 1.4, "mu": None},
    "als-dpfl": {"sampling_rate": 0.1, "noise_multiplier": 1.4},
    "dp-ftrl": {"noise_multiplier": 5.0},
}
COMBINED: dict[str, dict[str, Any]] = {
    "als": {"steps": "als", "prox": 0.1, "noise_multiplier": 1.4},
    "haar": {"clipping": "haar", "haar_weights": "orthonormal", "optimiser": "adam", "rate": 0.01},
    "momentum": {"optimiser": "momentum", "rate": 0.01, "weights": "similarity"},
    "adagrad": {"optimiser": "adagrad", "rate": 0.01},
    "uploads": {"where": "uploads", "objective": "contrastive", "rate": 0.1},
    "quantile": {"where": "round", "clipping": "quantile", "noise_multiplier": 0.5},
    "perturbed": {"where": "round", "objective": "perturbed", "rate": 0.1},
}
FLOATING = {
    "fedavg",
    "ce-fedavg",
    "fedprox",
    "moon",
    "scaffold",
    "dp-fedavg-wav",
    "dp-sgd-wav",
    "dp-ftrl",
    "adap-dp-fl",
    "haar",
}
"""Systems without noise, or whose noise has no secure form."""


def again(words: Any) -> Any:
    """As the other side has them."""
    return json.loads(canonical(words))


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("name", [*ALGORITHMS, *COMBINED])
def test_every_task_of_every_sound_system_comes_out_as_it_went_in(
    crowd: Federation, name: str, secure: bool
) -> None:
    options = COMBINED.get(name) or OPTIONS.get(name, {})
    algorithm = from_name("custom" if name in COMBINED else name, **options)
    if secure and name in FLOATING:
        with pytest.raises(DpflError, match=r"privacy\.noise"):
            tasks_of(algorithm, crowd, MODEL, secure)
        return
    given = tasks_of(algorithm, crowd, MODEL, secure)
    assert {"0/train", "1/train"} <= {task_messages.task_name(task) for task in given}
    for task in given:
        found = task_messages.task_from_words(again(task_messages.task_to_words(task)))
        assert found == task
        assert digest_of(found) == digest_of(task), (
            "the name of a release, and so its noise, comes from it"
        )


def test_surveys_are_among_them(crowd: Federation) -> None:
    asked = {task_messages.task_name(task) for task in tasks_of(from_name("hw-dpfl"), crowd, MODEL)}
    assert "0/query.histogram" in asked
    centred = dpfl.data.tensors(torch.zeros(8, 3, 8, 8), torch.zeros(8), classes=2).split(
        clients=2, how=dpfl.data.IID(), seed=0
    )
    asked = {
        task_messages.task_name(task)
        for task in tasks_of(from_name("auto"), centred, dpfl.models.scattering_linear())
    }
    assert "0/query.mean" in asked


def test_every_survey_can_travel() -> None:
    asked = {
        "query.histogram": LabelQuery(2.0),
        "query.mean": MeanQuery(2.0, True),
        "query.columns": ColumnQuery(2.0, 3, (0, 2), ((1, 8),)),
        "query.metric": MetricQuery(2.0, 2, 10, 4.0, 0.25),
    }
    assert (
        set(asked)
        == {format_of(kind).tag for kind in PrivateQuery.__subclasses__()}
        == set(task_messages.QUERY_PARTS)
    )
    for query in asked.values():
        task = replace(TASK, query=query)
        assert repr(
            task_messages.task_from_words(again(task_messages.task_to_words(task)))
        ) == repr(task)
    for odd in (
        replace(asked["query.columns"], binned=((0, 10**9),)),
        replace(asked["query.columns"], places=(-1,)),
    ):
        with pytest.raises(ProtocolError):
            task_messages.task_to_words(replace(TASK, query=odd))


FINITE = st.floats(1e-6, 1e6)
SAMPLES = st.builds(
    Release,
    st.builds(Poisson, st.floats(1e-6, 1.0)),
    st.builds(Flat, FINITE),
    st.none() | st.builds(Gaussian, FINITE),
    divide_by_drawn=st.booleans(),
)
TASKS = st.builds(
    ClientTask,
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.builds(LocalTraining, st.builds(SGD, FINITE), st.integers(1, 10**6), st.floats(0, 10)),
    SAMPLES,
    st.none() | SAMPLES,
    st.integers(0, 10**6),
    st.booleans(),
    st.none(),
    st.none()
    | st.builds(LabelQuery, st.none() | FINITE, st.booleans(), st.booleans())
    | st.builds(MeanQuery, FINITE),
    st.booleans(),
)


@given(TASKS)
def test_tasks_come_out_as_they_went_in(task: ClientTask) -> None:
    assert repr(task_messages.task_from_words(again(task_messages.task_to_words(task)))) == repr(
        task
    )


@pytest.mark.parametrize(
    "learning",
    [
        MultiClass(10),
        MultiClass(2, (0.5, 2.0)),
        Binary(),
        MultiLabel(3),
        Ordinal(4),
        Regression("huber", 1.0, 2.0),
        Counts(),
        Counts(mean=2.5),
        NextToken(9),
    ],
)
def test_what_is_to_be_learned_comes_out_as_it_went_in(learning: Any) -> None:
    assert repr(
        task_messages.learning_from_words(again(task_messages.learning_to_words(learning)))
    ) == repr(learning)


def test_what_cannot_travel_is_not_written() -> None:
    @dataclass(frozen=True)
    class SGD(type(TASK.local.optimiser)):  # type: ignore[misc]
        """Of the same name, and none of ours."""

    for odd in (
        replace(TASK, local=replace(TASK.local, optimiser=SGD(0.1))),
        replace(TASK, samples=replace(TASK.samples, noise=Uncalibrated())),
        replace(TASK, round=-1),
        replace(TASK, steps=1.5),
        replace(TASK, local=replace(TASK.local, objective=CrossEntropy)),
    ):
        with pytest.raises(ProtocolError):
            task_messages.task_to_words(odd)


def test_numbers_of_numpy_are_written_as_any_others() -> None:
    task = replace(TASK, local=LocalTraining(SGD(np.float64(0.25))))
    assert task_messages.task_from_words(again(task_messages.task_to_words(task))) == task


def test_replies_come_out_as_they_went_in() -> None:
    update = torch.arange(5, dtype=torch.float32)
    words, arrays = task_messages.reply_to_words(
        ClientReply(2, update, inside=False, raw={"slope": np.array(0.5)})
    )
    found = task_messages.reply_from_words(again(words), arrays, size=5)
    assert (found.client, found.inside, found.raw) == (2, False, {"slope": np.array(0.5)})
    assert found.update is not None
    assert torch.equal(found.update, update)
    answer = task_messages.reply_from_words(
        *task_messages.reply_to_words(ClientReply(1, raw={"answer": np.ones(3)}))
    )
    assert answer.update is None
    assert answer.raw is not None
    assert answer.raw["answer"].tolist() == [1, 1, 1]
    for empty in (ClientReply(1), ClientReply(1, refusal="no"), ClientReply(1, failure="no")):
        with pytest.raises(ProtocolError):
            task_messages.reply_to_words(empty)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"update": np.ones(5)},
        {"update": np.ones((5, 1), np.float32)},
        {"update": np.ones(4, np.float32)},
        {"update": np.ones(5, np.float32), "raw_more": np.ones(1)},
        {"update": np.ones(5, np.float32), "slope": np.ones(1)},
        {"update": np.ones(5, np.float32), "raw_gradient": np.ones(6)},
        {"raw_answer": np.ones((2, 2))},
    ],
)
def test_arrays_that_no_reply_has_are_refused(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(ProtocolError):
        task_messages.reply_from_words({"client": 0, "inside": True}, arrays, size=5)


def test_every_reason_has_a_sentence() -> None:
    assert set(SENTENCES) == set(RefusalReason)
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in SENTENCES.values())


def test_the_documentation_lists_every_reason() -> None:
    text = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
    table = re.findall(r"^\| `([a-z-]+)` \| ([A-Z].*\.) \|$", text, re.MULTILINE)
    assert dict(table) == {str(reason): words for reason, words in SENTENCES.items()}


def test_which_raw_values_are_asked_for_does_not_name_a_release() -> None:
    """A release is named by the words of its task: what is sent beside it must not buy it other
    noise.
    """
    task = ClientTask(0, 1, 2, LocalTraining(SGD(0.1)), Release(), raw=True)
    assert (
        repr(replace(task, raw_values=("differences",)))
        == repr(task)
        != repr(replace(task, raw=False))
    )
