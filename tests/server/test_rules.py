"""Parts from Python that are not sound, alone or together, are refused with a sentence each; what
is sound is not.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.algorithms import (
    ALGORITHMS,
    Algorithm,
    ali_dpfl,
    auto,
    dp_fedavg,
    dp_ftrl,
    dyn_dp_sgd,
    fedavg_dp,
    from_name,
    hw_dpfl,
    ldp_fl,
)
from dpfl.client.descent.optimisers import SGD, Momentum
from dpfl.client.task import LocalTraining, sample_sensitivity
from dpfl.errors import DpflError
from dpfl.privacy import (
    All,
    FixedSize,
    Flat,
    Gaussian,
    PerLayer,
    Poisson,
    PoissonSize,
    PublicMedian,
    Quantile,
    Release,
)
from dpfl.privacy.mechanisms.clips.clip import Clip, ModelClip
from dpfl.privacy.mechanisms.noises.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.noises.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noises.noise import Uncalibrated
from dpfl.privacy.mechanisms.sampling import Cyclic
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.server.aggregation.weights import HellingerWeights
from dpfl.server.rules import RULES
from dpfl.server.schedules import DecaySchedule
from dpfl.server.steps.policy import FixedSteps

NOISE = Gaussian(1.0)


@pytest.mark.parametrize("sampling", [Poisson(0.01), FixedSize(3), Cyclic(2)])
def test_fault_an_upload_that_gains_by_a_draw_which_is_never_made(sampling: Any) -> None:
    noise = BandedNoise(1.0) if isinstance(sampling, Cyclic) else NOISE
    with pytest.raises(DpflError, match="No units are sampled for an update"):
        UpdateRelease(sampling, Flat(1.0), noise, sensitivity_bound=2.0, protects="client")


@pytest.mark.parametrize("clip", [Flat(1.0), PerLayer(1.0), ModelClip(1.0)])
@pytest.mark.parametrize("moves", [0.02, 1.0, 1.999])
def test_fault_noise_for_less_than_two_clipped_uploads_can_be_apart(
    clip: Clip, moves: float
) -> None:
    with pytest.raises(DpflError, match="twice its norm apart"):
        UpdateRelease(All(), clip, NOISE, sensitivity_bound=moves, protects="client")
    assert UpdateRelease(All(), clip, NOISE, sensitivity_bound=2.0, protects="client").event(
        1
    ) == All().event(1.0, 1)


@pytest.mark.parametrize("protects", ["sample", "client"])
@pytest.mark.parametrize("noise", [HaarNoise(1.0, ends=(1024,)), Uncalibrated(HaarNoise(1.0))])
def test_fault_haar_noise_for_how_far_the_vector_of_an_upload_moves(
    noise: Any, protects: str
) -> None:
    """Of 1024 weights it counted as a multiplier of 1 and was worth 0.03: coefficients move further
    than the vector does.
    """
    with pytest.raises(DpflError, match="every step or to the sum of a round"):
        UpdateRelease(
            All(), HaarClip(0.05, ends=(1024,)), noise, sensitivity_bound=0.1, protects=protects
        )


def test_fault_a_clip_of_coefficients_of_layers_for_noise_on_those_of_the_whole() -> None:
    with pytest.raises(DpflError, match="same weights"):
        Release(Poisson(0.1), HaarClip(1.0, ends=(8, 16)), HaarNoise(1.0, ends=(16,))).event(10)


@pytest.mark.parametrize("wrong", [{"shared_by": 4}, {"divide_by_drawn": True}])
def test_an_upload_has_all_of_its_noise_itself(wrong: dict[str, Any]) -> None:
    with pytest.raises(DpflError, match="leave out divisor, shared_by and divide_by_drawn"):
        UpdateRelease(All(), Flat(1.0), NOISE, sensitivity_bound=2.0, protects="client", **wrong)


def for_a_sample(
    moves: float, samples: Release | None, steps: int = 1, local: LocalTraining | None = None
) -> Algorithm:
    upload = UpdateRelease(
        All(), Flat(0.06 * steps), NOISE, sensitivity_bound=moves, protects="sample"
    )
    return replace(
        ldp_fl(),
        updates=upload,
        samples=samples,
        steps=FixedSteps(steps),
        local=local or LocalTraining(SGD(0.05)),
    )


UNBOUNDED = {
    "no clip on samples": lambda: for_a_sample(0.002, None),
    "a clip of nothing": lambda: for_a_sample(0.002, Release(FixedSize(50))),
    "batches that are larger by chance": lambda: for_a_sample(
        0.002, Release(Poisson(0.5), Flat(1.0))
    ),
    "one sample more than was declared": lambda: for_a_sample(
        0.1 * 20, Release(All(), Flat(1.0)), steps=20
    ),
    "less than what one sample moves": lambda: for_a_sample(
        0.0019, Release(FixedSize(50), Flat(1.0))
    ),
    "a second step that is forgotten": lambda: for_a_sample(
        0.002, Release(FixedSize(50), Flat(1.0)), steps=2
    ),
    "another rate": lambda: for_a_sample(
        0.002, Release(FixedSize(50), Flat(1.0)), local=LocalTraining(SGD(0.06))
    ),
    "momentum": lambda: for_a_sample(
        0.002, Release(FixedSize(50), Flat(1.0)), local=LocalTraining(Momentum(0.05))
    ),
    "a pull that can overshoot": lambda: for_a_sample(
        0.002, Release(FixedSize(50), Flat(1.0)), local=LocalTraining(SGD(0.05), prox=1e3)
    ),
}


@pytest.mark.parametrize("what", UNBOUNDED)
def test_fault_an_upload_for_a_sample_that_nothing_bounds(what: str) -> None:
    with pytest.raises(DpflError, match="covers less than one sample can change"):
        UNBOUNDED[what]()


def test_an_upload_for_a_sample_is_bounded_by_the_clip_of_gradients_or_by_its_own() -> None:
    assert for_a_sample(0.002, Release(FixedSize(50), Flat(1.0))).unit == "sample"
    assert for_a_sample(0.12, None).unit == "sample", (
        "twice the clip of the upload holds for a sample, too"
    )


@given(
    steps=st.integers(1, 20),
    batch=st.integers(1, 100),
    clip=st.floats(0.01, 10),
    rate=st.floats(0.001, 1),
)
def test_hw_dpfl_has_just_the_bound_that_its_training_gives(
    steps: int, batch: int, clip: float, rate: float
) -> None:
    system = hw_dpfl(tau=steps, batch_size=batch, clip=clip, rate=rate, noise_multiplier=1.0)
    assert system.updates is not None
    assert system.updates.sensitivity_bound == pytest.approx(
        sample_sensitivity(system.local, system.samples, steps), rel=1e-9
    )


@dataclass(frozen=True)
class Liar(Release):
    def event(self, population: int) -> Any:
        return All().event(100.0, population)


@dataclass(frozen=True)
class LyingUpload(UpdateRelease):
    def event(self, population: int) -> Any:
        return All().event(100.0, population)


@dataclass(frozen=True)
class Extra(FixedSteps):
    paid_slopes = 3


SAMPLES = fedavg_dp(noise_multiplier=1.0)
ALI = ali_dpfl(noise_multiplier=1.0)
ROUND = dp_fedavg(cohort=4, noise_multiplier=1.0)
TOGETHER: dict[str, tuple[Callable[[], Algorithm], str]] = {
    "a release that counts what it does not add": (
        lambda: replace(SAMPLES, samples=Liar(Poisson(0.1), Flat(1.0), NOISE)),
        "class of your own",
    ),
    "the same of clients": (
        lambda: replace(ROUND, clients=Liar(All(), Flat(1.0), NOISE)),
        "class of your own",
    ),
    "the same of uploads": (
        lambda: replace(
            ldp_fl(),
            updates=LyingUpload(All(), Flat(1.0), NOISE, sensitivity_bound=2.0, protects="client"),
        ),
        "class of your own",
    ),
    "a cohort that does not know itself": (
        lambda: replace(ROUND, clients=Release(FixedSize(4), Flat(1.0), NOISE)),
        "draw clients with FixedCohort",
    ),
    "batches whose rate follows from how many samples there are": (
        lambda: replace(SAMPLES, samples=Release(PoissonSize(4), Flat(1.0), NOISE)),
        "set a fixed sampling_rate",
    ),
    "a quantile of samples": (
        lambda: replace(SAMPLES, samples=Release(Poisson(0.1), Quantile(1.0), NOISE)),
        "adapts to the clients",
    ),
    "a public median of uploads": (
        lambda: replace(
            ldp_fl(),
            updates=UpdateRelease(
                All(), PublicMedian(1.0), NOISE, sensitivity_bound=2.0, protects="client"
            ),
        ),
        "adapts to the clients",
    ),
    "shares of the noise in steps": (
        lambda: replace(SAMPLES, samples=Release(Poisson(0.1), Flat(1.0), NOISE, shared_by=4)),
        "belongs on the sum of a round",
    ),
    "turns of samples": (
        lambda: replace(SAMPLES, samples=Release(Cyclic(2), Flat(1.0), BandedNoise(1.0))),
        "belongs on the sum of a round",
    ),
    "a cohort divided as drawn": (
        lambda: replace(ROUND, clients=replace(ROUND.clients, divide_by_drawn=True)),
        "expected cohort",
    ),
    "a batch divided as drawn": (
        lambda: replace(SAMPLES, samples=replace(SAMPLES.samples, divide_by_drawn=True)),
        "named in its leaks",
    ),
    "steps that follow noisy sums which are divided by one number for all": (
        lambda: replace(ALI, samples=replace(ALI.samples, divisor=8.0)),
        "leave the divisor out",
    ),
    "the same of the slope that is paid for": (
        lambda: ali_dpfl("published", reading="code", mu="paid", noise_multiplier=1.0),
        "leave the divisor out",
    ),
    "a policy that counts three slopes": (
        lambda: replace(SAMPLES, steps=Extra(2)),
        "set paid_slopes to 0 or 1",
    ),
    "a mean for one more, batches for one replaced": (
        lambda: replace(
            auto(noise_multiplier=1.0, rate=1.0), samples=Release(FixedSize(4), Flat(1.0), NOISE)
        ),
        "adding or removing one sample",
    ),
    "a histogram for one more, batches for one replaced": (
        lambda: replace(
            SAMPLES,
            weights=HellingerWeights("similarity", LabelQuery(5.0)),
            samples=Release(FixedSize(4), Flat(1.0), NOISE),
        ),
        "adding or removing one sample",
    ),
    "a level that falls under noise that is taken back": (
        lambda: replace(dp_ftrl(noise_multiplier=1.0), schedule=DecaySchedule()),
        "A schedule needs",
    ),
    "a mean where clients are protected": (
        lambda: replace(ROUND, centre=MeanQuery(5.0)),
        "protects one sample",
    ),
}


@pytest.mark.parametrize("what", TOGETHER)
def test_parts_that_cannot_be_together_are_refused(what: str) -> None:
    make, sentence = TOGETHER[what]
    with pytest.raises(DpflError, match=sentence):
        make()


ALONE: dict[str, tuple[Callable[[], Release], str]] = {
    "plain noise on clipped coefficients": (
        lambda: Release(All(), HaarClip(1.0, "coefficients"), NOISE),
        "does not bound the vector itself",
    ),
    "a count beside noise that is taken back": (
        lambda: Release(Cyclic(2), Quantile(1.0), BandedNoise(1.0)),
        "one clip norm for all rounds",
    ),
    "a level that moves under noise that is taken back": (
        lambda: Release(Cyclic(2), PublicMedian(1.0), BandedNoise(1.0)),
        "one clip norm for all rounds",
    ),
    "shares of noise that is taken back": (
        lambda: Release(Cyclic(2), Flat(1.0), BandedNoise(1.0), shared_by=2),
        "one place that adds it",
    ),
    "a count beside Haar noise": (
        lambda: Release(All(), Quantile(1.0), HaarNoise(1.0)),
        "one release with Gaussian noise",
    ),
}


@pytest.mark.parametrize("what", ALONE)
def test_a_release_whose_parts_have_no_proof_together_is_refused(what: str) -> None:
    make, sentence = ALONE[what]
    with pytest.raises(DpflError, match=sentence):
        make()


def test_every_rule_is_one_sentence_and_no_system_breaks_one() -> None:
    for _, sentence in RULES:
        assert sentence.endswith(".")
        assert "\n" not in sentence
    for name in ALGORITHMS:
        from_name(name)
    dyn_dp_sgd(variant="published")
