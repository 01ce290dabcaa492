"""Rules of tasks that only secure sums can break."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpfl.client.disclosure_rules import DisclosureRules
from dpfl.client.task import ClientTask, SecureSumTerms
from dpfl.privacy import Flat, Gaussian, Poisson, Release
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from tests.node.loopback import (
    TASK,
)


class TestSummedTasks:
    RELEASE = Release(Poisson(0.2), Flat(1.0), Gaussian(1.0), noise_shares=NoiseShares(3, 1))
    SUMMED = SecureSumTerms(1.0, 60.0, 4)

    def reason(self, **changes: Any) -> str:
        usual = {"samples": self.RELEASE, "secure_sum": self.SUMMED, "steps": 1}
        task: ClientTask = replace(TASK, **{**usual, **changes})
        return str(DisclosureRules(sums=True).reason(task) or "")

    def test_one_step_or_one_update_is_in_a_sum_and_nothing_beside_it(self) -> None:
        assert self.reason() == ""
        assert self.reason(steps=2) == "uncovered"
        assert self.reason(secure_sum=None) == "uncovered"
        assert self.reason(slope=True) == "uncovered"
        assert self.reason(raw=True) == "raw-values"
        update = {"samples": None, "clients": self.RELEASE}
        assert self.reason(**update) == ""
        assert self.reason(**update, steps=5) == "", "an update of several steps is one update"

    def test_of_answers_only_means_with_shared_noise_are_summed(self) -> None:
        mean = MeanQuery(5.0, secure=True)
        asked = {"steps": 0, "query": mean}
        assert self.reason(**asked) == ""
        assert self.reason(**asked, secure_sum=None) == ""
        assert self.reason(**{**asked, "query": LabelQuery(5.0, secure=True)}) == "uncovered"
        assert self.reason(**asked, samples=replace(self.RELEASE, noise_shares=None)) == "uncovered"
        alone = DisclosureRules()
        task = replace(TASK, samples=self.RELEASE, secure_sum=self.SUMMED, **asked)
        assert str(alone.reason(task)) == "not-trusted"
