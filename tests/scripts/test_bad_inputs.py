"""A part of the bad inputs. `make badinputs` tries all of them."""

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
EVERY = 12


def test_bad_inputs_get_a_sentence_and_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import bad_input_cases
    import bad_inputs

    whole = bad_input_cases.cases()
    assert len(whole) >= 300
    assert len({case.name for case in whole}) == len(whole)
    chosen = [case for case in whole if not case.apart][::EVERY]
    wrong = {
        outcome.case.name: (outcome.faults, outcome.message)
        for outcome in bad_inputs.run(chosen)
        if outcome.faults
    }
    assert not wrong
    for name in ("bad_inputs", "bad_input_cases", "bad_input_calls"):
        sys.modules.pop(name)
