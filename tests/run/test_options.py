"""Option groups refuse wrong values where they are written, and are quick to import."""

import subprocess
import sys

import pytest

import dpfl
from dpfl.errors import DpflError
from tests.conftest import PATIENCE


@pytest.mark.parametrize(
    ("group", "options", "message"),
    [
        (dpfl.Privacy, {"entropy": "dice"}, "privacy.entropy"),
        (dpfl.Privacy, {"noise": "loud"}, "privacy.noise"),
        (dpfl.Privacy, {"noise": "secure"}, "privacy.entropy = 'system'"),
        (dpfl.Privacy, {"arithmetic": "quick"}, "privacy.arithmetic"),
        (dpfl.Privacy, {"arithmetic": "fast", "entropy": "system"}, "for simulations"),
        (dpfl.Aggregation, {"kind": "magic"}, "privacy.aggregation"),
        (dpfl.Aggregation, {"survivors": 3}, "for secure sums"),
        (dpfl.Evaluation, {"every": 0}, "at least 1 round"),
        (dpfl.Execution, {"seed": -1}, "A seed"),
        (dpfl.Execution, {"seed": True}, "A seed"),
        (dpfl.Execution, {"resume": True}, "name its folder"),
    ],
)
def test_a_wrong_value_is_refused_with_a_sentence(group, options, message):
    with pytest.raises(DpflError, match=message):
        group(**options)


def test_noise_is_secure_with_the_system_s_entropy_unless_told_otherwise():
    assert dpfl.Privacy().noise_for("sample") == "plain"
    assert dpfl.Privacy(entropy="system").noise_for("sample") == "secure"
    assert dpfl.Privacy(entropy="system").noise_for("none") == "plain"
    assert dpfl.Privacy(entropy="system", noise="plain").noise_for("sample") == "plain"


def test_a_run_is_evaluated_some_25_times():
    assert [dpfl.Evaluation().interval(rounds) for rounds in (None, 1, 25, 80)] == [1, 1, 1, 3]
    assert dpfl.Evaluation(every=7).interval(80) == 7


def test_the_groups_are_quick_to_import():
    code = (
        "import sys, dpfl; dpfl.Privacy, dpfl.Aggregation, dpfl.Evaluation, dpfl.Execution; "
        "sys.exit(bool({'torch', 'dp_accounting', 'numpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, timeout=PATIENCE).returncode == 0
