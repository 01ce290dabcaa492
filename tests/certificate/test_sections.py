"""A certificate holds exactly its own keys, each with a value of its own type."""

from __future__ import annotations

from typing import Any

import pytest

from dpfl.certificate.contents import (
    certify,
)
from dpfl.certificate.sections import (
    Certificate,
    ReleaseSection,
)
from dpfl.privacy.accounting.events import encode
from tests.certificate.by_hand import EVENT


@pytest.mark.parametrize(
    "odd", [{"count": "3"}, {"count": 3.0}, {"count": True}, {"event": 1}, {"more": 1}]
)
def test_values_of_another_kind_are_not_taken_for_the_right_one(odd: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        ReleaseSection(**{"event": encode(EVENT), "kind": "", "count": 3} | odd)


def test_a_certificate_holds_values_of_its_own_kinds_and_does_not_change(run_of, key):
    body = certify(run_of("samples"), key)["certificate"]
    made = Certificate.model_validate(body)
    with pytest.raises(Exception, match="frozen"):
        made.issued = "later"  # type: ignore[misc]
    for place, wrong in (("rounds", "2"), ("clients", 4.0), ("budget", "3")):
        with pytest.raises(ValueError, match=place):
            Certificate.model_validate({**body, "trained": {**body["trained"], place: wrong}})
