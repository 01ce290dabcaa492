"""Every system is the same again when it is made from its record; what is not of this package is
not made at all.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
import tomli_w

from dpfl.algorithms import ALGORITHMS, Algorithm, from_name, options_of
from dpfl.errors import DpflError
from dpfl.run.records.algorithm_record import algorithm_of, describe, describe_options
from dpfl.run.records.digests import without_none

SYSTEMS = [
    (name, {"variant": word})
    for name in ALGORITHMS
    if "variant" in options_of(name)
    for word in ("sound", "published")
]
SYSTEMS += [(name, {}) for name in ALGORITHMS if "variant" not in options_of(name)]


def recorded(part: Algorithm) -> dict[str, Any]:
    return tomllib.loads(tomli_w.dumps(without_none(describe(part))))


@pytest.mark.parametrize(("name", "options"), SYSTEMS)
def test_a_system_is_made_again_from_its_record(name, options):
    made = from_name(name, **options)
    again = algorithm_of(recorded(made))
    formula = again.claim.formula
    assert replace(again, claim=replace(again.claim, formula=None)) == replace(
        made, claim=replace(made.claim, formula=None)
    )
    assert (formula is None) == (made.claim.formula is None)
    if formula and made.claim.formula:
        assert formula(3) == made.claim.formula(3)


def test_a_record_that_names_nothing_known_is_refused():
    record = recorded(from_name("fedavg-dp"))
    record["samples"]["noise"]["part"] = "Silence"
    with pytest.raises(DpflError, match="'Silence' is unknown"):
        algorithm_of(record)


def test_a_record_of_parts_that_do_not_fit_is_refused():
    record = recorded(from_name("hw-dpfl", variant="published"))
    record["leaks"] = []
    with pytest.raises(DpflError, match="must be named in its leaks"):
        algorithm_of(record)


def test_options_of_a_model_are_recorded_with_their_values():
    """A resumed run is compared with its record, so that tables of options keep what they hold."""
    options = (
        ("layers", {"first": 3, "deeper": {"second": 0.5}}),
        ("name", "wide"),
        ("part", object()),
    )
    assert describe_options(options) == {
        "layers": {"first": 3, "deeper": {"second": 0.5}},
        "name": "wide",
        "part": "builtins:object",
    }
