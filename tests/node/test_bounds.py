"""What a server may send as a model, and how much memory its features may take: bounded by the
policy, before any debit.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpfl
from dpfl.client.descent.optimisers import SGD, Adam, Momentum
from dpfl.client.task import ClientTask, LocalTraining, SecureSumTerms
from dpfl.node.checks.readiness import findings
from dpfl.node.load_data import schema_digest
from dpfl.node.policy import read as read_policy
from dpfl.node.policy_sections import AllowedRuns
from dpfl.privacy import Flat
from dpfl.privacy.mechanisms.noises.integer_sum import IntegerSum
from dpfl.privacy.mechanisms.noises.secure_noise import SecureGaussian
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.columns import MIN_VARIANCE
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.protocol import task_messages
from tests.conftest import small_federation
from tests.node.loopback import (
    EVENT,
    PROPOSAL,
    ROUNDS,
    SAMPLES,
    SIZE,
    STEPS,
    TASK,
    Asked,
    Open,
    ask,
    join,
    new_node,
    round_of,
    vector,
    work,
)  # fmt: skip
from tests.node.summing import Together
from tests.node.summing import task as summed

LARGEST = AllowedRuns().largest_weight
SLOPED = round_of(0, slope=True)
METRIC = MetricQuery(6.0, 2, 0, 4.0, 0.0, secure=True)
QUERIES = (LabelQuery(5.0, secure=True), MeanQuery(4.0, secure=True), METRIC)
UPLOAD = UpdateRelease(clip=Flat(1.0), noise=SecureGaussian(1.0), sensitivity_bound=2.0)
KINDS: dict[str, ClientTask] = {
    "steps": TASK,
    "a slope": SLOPED,
    "an upload": round_of(0, samples=None, update=UPLOAD),
    **{type(query).__name__: replace(TASK, steps=0, query=query) for query in QUERIES},
}
EVENTS = ((EVENT, ROUNDS * STEPS), *((query.event, 1) for query in QUERIES), (UPLOAD.event(1), 1))


@pytest.fixture
def node(opened: Open) -> Asked:
    """One that joined a run with every kind of release."""
    found = opened(limits={"epsilon": 100.0})
    assert found(join(replace(PROPOSAL, epsilon=90.0, events=EVENTS))).header["kind"] == "joined"
    return found


def with_entry(place: int, value: float) -> np.ndarray:
    model = vector()
    model[place] = value
    return model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [1.01 * LARGEST, -1.01 * LARGEST, 1e9, -3e38])
@pytest.mark.parametrize("place", [0, SIZE - 1])
def test_a_weight_beyond_the_policy_is_refused_before_anything_is_debited(
    node: Asked, kind: str, value: float, place: int
) -> None:
    before = node.rows()
    assert node.refused(work(KINDS[kind], with_entry(place, value))) == "weights-too-large"
    assert node.rows() == before
    assert not list((node.folder / "replies").iterdir())


@pytest.mark.parametrize("kind", ["steps", "a slope", "MetricQuery"])
def test_a_weight_at_the_bound_is_worked_for(node: Asked, kind: str) -> None:
    answer = node(work(KINDS[kind], with_entry(SIZE - 1, LARGEST)))
    assert answer.header["kind"] == "reply"
    assert node.spending()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_that_is_not_finite_is_refused(
    node: Asked, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    with monkeypatch.context() as lying:
        lying.setattr(
            np, "isfinite", lambda array: np.ones_like(array, bool)
        )  # the server's own check
        message = work(TASK, with_entry(3, value))
    before = node.rows()
    assert node.refused(message) == "not-finite"
    assert node.rows() == before


def test_the_owner_sets_the_bound(opened: Open) -> None:
    node = opened(allow={"largest_weight": 0.5})
    node(join())
    assert node.refused(work(TASK, with_entry(0, 0.51))) == "weights-too-large"
    assert node(work(TASK, np.clip(vector(), -0.5, 0.5))).header["kind"] == "reply"


def corrected(value: float, rate: float = 0.1) -> bytes:
    correction = np.full(SIZE, 0.01, np.float32)
    correction[7] = value
    task = replace(TASK, local=LocalTraining(SGD(rate)))
    return work(task, arrays={"model": vector(), "correction": correction})


def test_a_correction_cannot_carry_the_model_beyond_the_bound(opened: Open) -> None:
    """It is added to every gradient: what it may be is bounded, and so is how far all steps take
    the model along it.
    """
    node = opened()
    node(join())
    assert node.refused(corrected(1.01 * LARGEST)) == "weights-too-large"
    assert node.refused(corrected(1.0, rate=1e9)) == "weights-too-large"
    assert node.refused(corrected(-0.6, rate=LARGEST)) == "weights-too-large"
    assert not node.spending()
    assert node(corrected(0.5, rate=0.1)).header["kind"] == "reply"


def test_momentum_does_not_carry_the_model_further_along_a_correction(opened: Open) -> None:
    """Fault: the bound counted every step once, and the share of the last step that is kept could
    be any number.
    """
    node = opened()
    node(join())

    def asked(optimiser: Any, **changes: float) -> bytes:
        task = replace(TASK, local=LocalTraining(optimiser))
        words = task_messages.task_to_words(task)
        words["local"]["optimiser"] |= changes
        arrays = {"model": vector(), "correction": np.full(SIZE, 1.0, np.float32)}
        return ask("work", order=task_messages.task_name(task), task=words, arrays=arrays)

    assert node.refused(asked(Momentum(0.4 * LARGEST, beta=0.9))) == "weights-too-large"
    for beta in (1.0, 1e9, -0.5):
        assert node.refused(asked(Momentum(0.1), beta=beta)) == "bad-words"
    for changes in ({"beta1": 2.0}, {"beta2": 1.0}, {"epsilon": 0.0}):
        assert node.refused(asked(Adam(0.1), **changes)) == "bad-words"
    assert not node.spending()
    assert node(asked(Momentum(0.1, beta=0.9))).header["kind"] == "reply"


def test_members_of_a_secure_sum_refuse_it_too(begun: tuple[Together, str]) -> None:
    together, session = begun
    for name, node in together.nodes.items():
        assert (
            node.refused(together.work(session, summed(name), with_entry(0, 1e9)))
            == "weights-too-large"
        )
        assert together.spending(name) == {}
    assert together.masked(session, "a").numbers.any(), "nothing was masked for this round yet"


def test_a_client_s_sum_is_weighted_in_float64(
    begun: tuple[Together, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: with numpy 1 a float32 sum times a weight was rounded to float32 again, by 2^-24 of
    its length: two sums that one sample moves apart by C could be rounded farther apart."""
    (together, session), given = begun, []
    monkeypatch.setattr(
        IntegerSum,
        "numbers",
        lambda self, vector, rng: given.append(vector) or np.zeros(len(vector), self.kind),
    )
    scale = 0.3
    task = summed("a", secure_sum=SecureSumTerms(scale, 60.0, len(together.nodes)))
    together.nodes["a"](together.work(session, task))
    (sent,) = given
    assert sent.dtype == np.float64
    assert not np.array_equal(sent.astype(np.float32), sent)


def test_a_scale_that_blows_samples_up_is_refused(opened: Open, tmp_path: Path) -> None:
    """A number of a table is divided by the root of a variance that comes with the model; an honest
    one is at least 1e-5.
    """
    table = {
        "label": "y",
        "task": "binary",
        "columns": {"age": {"low": 0, "high": 99, "scale": "paid"}},
    }
    (new_node(tmp_path / "b").parent / "own.csv").write_text("age,y\n" + "40,1\n30,0\n" * 30)
    node = opened(data={"name": "own.csv", "classes": None, **table}, allow={"models": ["linear"]})
    held = node.service.data
    words = {
        "model": "linear",
        "options": (),
        "learning": held.task,
        "shape": held.shape,
        "schema": schema_digest(held),
    }
    assert node(join(replace(PROPOSAL, **words))).header["kind"] == "joined"
    honest = np.array([0.1, 0.0, -1.0, MIN_VARIANCE], np.float32)  # weight, bias, mean, variance
    for variance in (0.0, -1.0, 1e-38, 0.9 * MIN_VARIANCE):
        model = honest.copy()
        model[-1] = variance
        assert node.refused(work(TASK, model)) == "weights-too-large"
    assert node.spending() == {}
    assert node(work(TASK, honest)).header["kind"] == "reply"


@pytest.mark.parametrize("model", ["linear", "mlp", "scattering-linear"])
def test_no_honest_run_comes_near_the_bound(model: str, tmp_path: Path) -> None:
    """The noisiest runs have the largest weights: 40 rounds at an epsilon of a tenth stay below a
    hundredth of it.
    """
    result = dpfl.train(
        model,
        small_federation(),
        "auto",
        dpfl.Budget(epsilon=0.2, delta=1e-5, rounds=10),
        execution=dpfl.Execution(seed=1),
    )
    assert (
        max(float(entry.abs().max()) for entry in result.module.state_dict().values())
        < LARGEST / 100
    )


# Memory

SCATTERED = replace(PROPOSAL, model="scattering-linear", options=())
FEATURES = 3969
"""Numbers of an image of 28 x 28."""


def scattered(opened: Open, name: str, most: int, size: Any) -> Asked:
    allow = {"models": ["scattering-linear"], "most_memory": most}
    return opened(name, allow=allow, tell={"size": size})


def test_features_that_take_more_memory_than_the_policy_allows_are_refused_by_the_declared_size(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = 4 * FEATURES * 1000
    assert (
        scattered(opened, "enough", needed, {"constant": 1000})(join(SCATTERED)).header["kind"]
        == "joined"
    )
    node = scattered(opened, "little", needed - 1, {"constant": 1000})
    monkeypatch.setattr(
        "dpfl.node.build_runner.features_of",
        lambda *_: pytest.fail("features were computed for a run that is refused"),
    )
    assert node.refused(join(SCATTERED)) == "too-much-memory"
    assert node.refused(work()) == "not-joined"


def test_what_a_refusal_says_of_memory_is_what_the_size_says(opened: Open) -> None:
    """With a size that is rounded to hundreds, 60 samples are refused and allowed as 100 are."""
    for most, answer in ((4 * FEATURES * 100 - 1, "refused"), (4 * FEATURES * 100, "joined")):
        node = scattered(opened, answer, most, {"rounded": 100})
        assert node(join(SCATTERED)).header["kind"] == answer


def test_a_policy_that_allows_less_memory_since_a_run_was_joined_holds(opened: Open) -> None:
    node = scattered(opened, "b", 1 << 30, "exact")
    node(join(SCATTERED))
    node.service.close()
    node = scattered(opened, "b", 4 * FEATURES * SAMPLES - 1, "exact")
    model = np.zeros(FEATURES * 10 + 10 + FEATURES, np.float32)
    assert node.refused(work(TASK, model)) == "too-much-memory"
    assert node.spending() == {}


def test_the_default_allows_the_features_of_mnist_and_refuses_4096_patches() -> None:
    most = AllowedRuns().most_memory
    assert most >= 4 * FEATURES * 60_000
    assert most >= 4 * 11_872 * 50_000, "mirrored, with 512 patches, on CIFAR-10"
    assert most < 4 * (FEATURES + 16 * 4096) * 60_000


@pytest.mark.parametrize(
    ("size", "most", "model", "good", "words"),
    [
        (
            "exact",
            1 << 20,
            "scattering-linear",
            True,
            "17476 bytes per sample, 0.001 GB for 60 samples",
        ),
        (
            {"constant": 30},
            1 << 20,
            "scattering-linear",
            True,
            "34952 bytes per sample, 0.0021 GB for 60 samples",
        ),
        ("exact", 1 << 44, "scattering-linear", False, "lower allow.most_memory"),
        ("exact", 1 << 44, "mlp", True, "no model that the policy allows needs memory"),
    ],
)
def test_an_owner_is_told_what_features_may_take(
    tmp_path: Path, size: Any, most: int, model: str, good: bool, words: str
) -> None:
    """Also where the size that is declared, by which runs are refused, is less than what there
    is.
    """
    policy = new_node(
        tmp_path / "b", tell={"size": size}, allow={"most_memory": most, "models": [model]}
    )
    found = next(finding for finding in findings(read_policy(policy)) if finding.part == "memory")
    assert (found.good, words in found.words) == (good, True), found.words
