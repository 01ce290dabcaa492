"""What an owner is told that leaves the node, by its policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfl.node.disclosures import describe_disclosures, describe_protection
from dpfl.node.policy import read
from tests.node.loopback import new_node


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"tell": {"size": "exact"}}, "how many samples there are: exactly"),
        ({"tell": {"size": {"rounded": 50}}}, "rounded up to 50s"),
        ({"tell": {"size": {"constant": 7}}}, "always said to be 7"),
        ({"tell": {"trusted": True}}, "CLIPPED UPDATES WITHOUT NOISE"),
        ({"tell": {"bare": True}}, "UPDATES WITHOUT ANY NOISE"),
        ({"limits": {"epsilon_a_year": 4.0}}, "30 in all, 4 per year"),
        ({"allow": {"largest_clip": 7.0}}, "clipped at 7 or less, from batches of"),
    ],
)
def test_what_leaves_is_named(tmp_path: Path, changes: dict[str, Any], phrase: str) -> None:
    policy = read(new_node(tmp_path / "b", **changes))
    assert phrase in "\n".join(describe_disclosures(policy))
    assert "samples, labels, identities" in next(describe_protection(policy))
