"""What an owner refuses unless it said otherwise, before anything is debited or computed."""

from dataclasses import replace
from pathlib import Path

import pytest

from dpfl.algorithms import Algorithm, ali_dpfl, dp_fedavg, fedavg, fedavg_dp, hw_dpfl, ldp_fl
from dpfl.client.descent.optimisers import SGD
from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.task import ClientTask, LocalTraining
from dpfl.privacy import All, FixedSize, Flat, Gaussian, Poisson, PoissonSize, Release
from dpfl.privacy.mechanisms.update_release import UpdateRelease
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from tests.client.small_client import site, spent, work

SAMPLES = Release(Poisson(0.5), Flat(1.0), Gaussian(1.0))
PRIVATE = ClientTask(0, 1, 2, LocalTraining(SGD(0.5)), Release(), SAMPLES)
PLAIN = replace(PRIVATE, samples=None)
TRUSTING = replace(PLAIN, clients=Release(All(), Flat(1.0), Gaussian(1.0)))
FOR_A_CLIENT = UpdateRelease(
    All(), Flat(1.0), Gaussian(1.0), sensitivity_bound=2.0, protects="client"
)
FOR_A_SAMPLE = UpdateRelease(All(), Flat(1.0), Gaussian(1.0), sensitivity_bound=0.02)
BATCHES = Release(FixedSize(50), Flat(1.0))

ASKED = {
    "no noise": (PLAIN, "without noise", DisclosureRules(bare=True)),
    "noise that was taken off": (
        replace(PRIVATE, samples=replace(SAMPLES, noise=None)),
        "without noise",
        DisclosureRules(bare=True),
    ),
    "noise at the server": (TRUSTING, "does not trust", DisclosureRules(trusted=True)),
    "shares of noise": (
        replace(PLAIN, clients=Release(All(), Flat(1.0), Gaussian(1.0), shared_by=9)),
        "does not trust",
        DisclosureRules(trusted=True),
    ),
    "raw values": (replace(PRIVATE, raw=True), "raw values", DisclosureRules(raw=True)),
    "raw values beside an upload": (
        replace(PRIVATE, raw=True, update=FOR_A_CLIENT, samples=BATCHES),
        "raw",
        DisclosureRules(raw=True),
    ),
    "the batch as drawn": (
        replace(PRIVATE, samples=replace(SAMPLES, divide_by_drawn=True)),
        "batch that was drawn",
        DisclosureRules(raw=True),
    ),
    "a trusted survey": (
        replace(PRIVATE, steps=0, query=LabelQuery(None, trusted=True)),
        "does not trust",
        DisclosureRules(trusted=True),
    ),
    "a trusted survey with noise": (
        replace(PRIVATE, steps=0, query=LabelQuery(1.0, trusted=True)),
        "does not trust",
        DisclosureRules(trusted=True),
    ),
    "an exact survey": (
        replace(PRIVATE, steps=0, query=LabelQuery(None)),
        "no noise",
        DisclosureRules(raw=True),
    ),
}


@pytest.mark.parametrize("what", ASKED)
def test_an_owner_refuses_what_it_did_not_agree_to(tmp_path: Path, what: str) -> None:
    task, words, agreed = ASKED[what]
    reply = work(site(tmp_path, disclosure_rules=DisclosureRules()), task)
    assert reply.update is None
    assert reply.raw is None
    assert words in reply.refusal
    assert not list(tmp_path.iterdir()), "nothing was debited"
    assert agreed.refusal(task) == ""
    others = [name for name in ("trusted", "bare", "raw") if not getattr(agreed, name)]
    assert DisclosureRules(**dict.fromkeys(others, True)).refusal(task), "another agreement is none"


@pytest.mark.parametrize(
    "task",
    [
        PRIVATE,
        replace(PRIVATE, slope=True),
        replace(PLAIN, update=FOR_A_CLIENT),
        replace(PRIVATE, steps=0, query=LabelQuery(5.0)),
        replace(PRIVATE, steps=0, query=MeanQuery(5.0)),
    ],
)
def test_what_is_paid_for_needs_no_agreement(tmp_path: Path, task: ClientTask) -> None:
    reply = work(site(tmp_path, disclosure_rules=DisclosureRules()), task)
    assert not reply.refusal
    assert sum(spent(tmp_path).values()) == (1 if task.query or task.update else 2 + task.slope)


NEVER = {
    "no step": replace(PRIVATE, steps=0),
    "less than no step": replace(PRIVATE, steps=-1),
    "a question that comes with steps": replace(PRIVATE, query=MeanQuery(5.0)),
    "no step and an upload": replace(PLAIN, steps=0, update=FOR_A_CLIENT),
    "a slope beside an upload": replace(PRIVATE, samples=BATCHES, update=FOR_A_CLIENT, slope=True),
    "noise for less than a sample moves": replace(PLAIN, update=FOR_A_SAMPLE),
    "batches whose rate tells how many samples there are": replace(
        PRIVATE, samples=replace(SAMPLES, sampling=PoissonSize(4))
    ),
    "noise for a mean of no more than was declared": replace(
        PRIVATE,
        samples=replace(BATCHES, sampling=All()),
        update=replace(FOR_A_SAMPLE, sensitivity_bound=2.0, clip=Flat(9.0)),
    ),
    "noise for one step of two": replace(
        PRIVATE, samples=BATCHES, update=FOR_A_SAMPLE, local=LocalTraining(SGD(0.5))
    ),
}


@pytest.mark.parametrize("what", NEVER)
def test_what_no_agreement_makes_sound_is_refused_whatever_was_agreed(
    tmp_path: Path, what: str
) -> None:
    everything = DisclosureRules(trusted=True, bare=True, raw=True)
    assert work(site(tmp_path, disclosure_rules=everything), NEVER[what]).refusal
    assert not list(tmp_path.iterdir())


def test_an_upload_for_a_sample_with_its_bound_is_made(tmp_path: Path) -> None:
    task = replace(
        PRIVATE,
        steps=1,
        samples=replace(BATCHES, sampling=FixedSize(10)),
        update=replace(FOR_A_SAMPLE, sensitivity_bound=0.1),
    )
    assert work(site(tmp_path, disclosure_rules=DisclosureRules()), task).update is not None


def test_clients_whose_data_is_public_have_nothing_to_refuse(tmp_path: Path) -> None:
    reply = work(site(tmp_path, disclosure_rules=DisclosureRules(), public=(1,)), PLAIN)
    assert reply.update is not None


@pytest.mark.parametrize(
    ("system", "disclosure_rules"),
    [
        (fedavg(), DisclosureRules(bare=True)),
        (dp_fedavg(noise_multiplier=1.0), DisclosureRules(trusted=True)),
        (fedavg_dp(noise_multiplier=1.0), DisclosureRules()),
        (ldp_fl(noise_multiplier=1.0), DisclosureRules()),
        (hw_dpfl(noise_multiplier=1.0), DisclosureRules()),
        (hw_dpfl("published"), DisclosureRules(raw=True)),
        (ali_dpfl("published"), DisclosureRules(raw=True)),
    ],
)
def test_a_system_says_what_owners_must_agree_to(
    system: Algorithm, disclosure_rules: DisclosureRules
) -> None:
    assert system.disclosure_rules == disclosure_rules
