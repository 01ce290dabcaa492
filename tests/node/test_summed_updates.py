"""A client's part of a secure sum of updates: as often as is counted, scaled as was asked, with its
share of the noise.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.runner import ClientRunner
from dpfl.client.task import ClientTask, SecureSumTerms
from dpfl.privacy import Flat, Gaussian, Keyed, Ledger, Poisson, Release
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from tests.client.small_client import PLAIN, SIZE, site, start

CLIENTS, LEVEL, NOISE = 8, 0.01, 1e-4
RELEASE = Release(Poisson(0.25), Flat(LEVEL), Gaussian(NOISE), noise_shares=NoiseShares(4, 0))
"""So little noise that a number that is sent tells whether there is an update in it; half of it in
each share.
"""
ASKED = replace(PLAIN, clients=RELEASE, secure_sum=SecureSumTerms(1.0, 1.0, CLIENTS), steps=1)


def sent(folder: Path, *tasks: ClientTask, entropy: int = 0) -> list[np.ndarray]:
    """The numbers that a client sends for each task, as the vector that they stand for."""
    node = ClientRunner(
        site(folder, disclosure_rules=DisclosureRules(sums=True), randomness=Keyed(entropy))
    )
    whole = RELEASE.integer_sum(1.0, CLIENTS)
    try:
        replies = [node.work(task, start()) for task in tasks]
    finally:
        node.close()
    assert all(reply.update is None and not reply.refusal for reply in replies)
    return [whole.total(reply.numbers) for reply in replies if reply.numbers is not None]


def test_a_client_is_in_the_sum_as_often_as_is_counted(tmp_path: Path):
    """By a coin of 1/4 of its own: 25 of 100 rounds, to four deviations; in the others it sends its
    noise alone.
    """
    lengths = [
        np.linalg.norm(one)
        for one in sent(tmp_path, *(replace(ASKED, round=number) for number in range(100)))
    ]
    share = NOISE * LEVEL / 2
    alone = [length for length in lengths if length < 10 * share * SIZE**0.5]
    drawn = [length for length in lengths if length > LEVEL / 2]
    assert len(alone) + len(drawn) == 100
    assert 8 <= len(drawn) <= 42
    assert np.mean(alone) == pytest.approx(share * SIZE**0.5, rel=0.1)
    assert max(drawn) <= LEVEL * (1 + 1e-3)


def test_everybody_is_in_a_sum_of_all(tmp_path: Path):
    release = replace(RELEASE, sampling=Poisson(1.0))
    lengths = [
        np.linalg.norm(one)
        for one in sent(tmp_path, *(replace(ASKED, clients=release, round=n) for n in range(20)))
    ]
    assert min(lengths) == pytest.approx(LEVEL, rel=1e-2)


def test_a_client_counts_by_the_scale_that_was_asked_for(tmp_path: Path):
    release = replace(RELEASE, sampling=Poisson(1.0))
    tasks = [
        replace(ASKED, clients=release, round=n, secure_sum=SecureSumTerms(scale, 1.0, CLIENTS))
        for n, scale in enumerate((1.0, 0.25, 0))
    ]
    lengths = [np.linalg.norm(one) for one in sent(tmp_path, *tasks)]
    assert lengths[1] / lengths[0] == pytest.approx(0.25, rel=1e-2)
    assert lengths[2] < LEVEL / 50


def test_numbers_that_are_made_again_have_other_noise_and_are_paid_for_again(tmp_path: Path):
    """The same task three times: three debits, each under a name of its own, and numbers that
    differ by noise.
    """
    release = replace(RELEASE, sampling=Poisson(1.0))
    task = replace(ASKED, clients=release)
    one, two, three = sent(tmp_path, task, task, task)
    for first, second in ((one, two), (two, three), (one, three)):
        assert np.std(first - second) == pytest.approx(NOISE * LEVEL / 2 * 2**0.5, rel=0.3)
    with closing(Ledger.read(ledger_path(tmp_path, "client-00001"))) as ledger:
        names = [name for _, name, *_ in ledger.debits()]
        assert ledger.spending() == {release.event(CLIENTS): 3}
    assert len(set(names)) == 3
    assert [name.split("/")[1] for name in names] == ["shared 4-0"] * 3
    assert [name.split("/")[3:] for name in names] == [[], ["1"], ["2"]]
