"""The next token: places that do not count are not measured."""

import math

import numpy as np
import pytest

from dpfl import tasks
from dpfl.tasks.intervals import intervals


def test_tokens_that_do_not_count_are_not_measured():
    scores = np.zeros((1, 2, 4))
    found = tasks.NextToken(4).metrics(scores, np.array([[0, -100]]))
    assert found["perplexity"] == pytest.approx(4.0)
    assert found["accuracy"] == 1.0


@pytest.mark.filterwarnings("error")
def test_of_no_places_that_count_nothing_is_said() -> None:
    task = tasks.NextToken(3)
    assert all(
        math.isnan(figure)
        for figure in task.metrics(np.zeros((2, 4, 3)), np.full((2, 4), -100)).values()
    )
    assert all(
        math.isnan(end)
        for ends in intervals(task, np.zeros((2, 4, 3)), np.full((2, 4), -100)).values()
        for end in ends
    )
