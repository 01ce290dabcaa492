"""Fixed steps, and the checks of whatever a policy says."""

from dataclasses import replace
from typing import Any

import pytest

from dpfl.algorithms import fedavg_dp
from dpfl.errors import DpflError
from dpfl.server.steps.policy import FixedSteps, StepContext, StepFacts
from tests.server.rounds import coordinator


def test_fixed_steps_are_the_same_every_round_and_add_up() -> None:
    steps = FixedSteps(7)
    facts = StepFacts(None, 0.1, 1.0, 1.0, 10, (), ())
    assert [steps.next(StepContext(facts, 100, 100, tau)) for tau in (0, 7, 3)] == [7] * 3
    assert steps.total(9) == 63


@pytest.mark.parametrize("tau", [0, -1])
def test_a_round_without_steps_is_refused(tau: int) -> None:
    with pytest.raises(DpflError, match="from 1 to"):
        FixedSteps(tau)


@pytest.mark.parametrize("tau", [0, -2, 1.5])
def test_a_policy_that_gives_no_step_is_refused_before_anyone_is_asked(tau: Any) -> None:
    policy = type("Idle", (FixedSteps,), {"next": lambda self, context: tau})(2)
    with pytest.raises(DpflError, match="at least 1 step per round"):
        coordinator(replace(fedavg_dp(noise_multiplier=1.0), steps=policy)).next_request()


@pytest.mark.parametrize("first", [1, 3])
def test_steps_that_are_not_what_they_said_beforehand_are_refused(first: int) -> None:
    """Else T could follow what was released, and the epsilon of T would be stated as proven."""
    policy = type("Sneaky", (FixedSteps,), {"next": lambda self, context: first})(2)
    with pytest.raises(DpflError, match="announced"):
        coordinator(replace(fedavg_dp(noise_multiplier=1.0), steps=policy)).next_request()
