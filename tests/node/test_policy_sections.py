"""Defaults and bounds of the keys of a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfl.errors import DpflError
from dpfl.node.policy import read
from tests.node.loopback import (
    new_node,
)


class TestPolicyFile:
    def test_what_is_not_written_has_these_values(self, tmp_path: Path) -> None:
        unwritten = dict.fromkeys(
            (
                "least_noise_multiplier",
                "largest_clip",
                "largest_sampling_rate",
                "most_steps",
                "most_rounds",
                "most_bytes",
            )
        )
        allow = read(new_node(tmp_path / "b", allow=unwritten)).allow
        assert (allow.least_noise_multiplier, allow.largest_clip, allow.largest_sampling_rate) == (
            0.3,
            10.0,
            0.5,
        )
        assert (allow.most_steps, allow.most_rounds, allow.most_bytes) == (1000, 1000, 268_435_456)

    @pytest.mark.parametrize(
        ("section", "good", "wrong"),
        [
            ("limits", {"delta": 0.999}, {"delta": 1.0}),
            ("limits", {"delta": 1e-12}, {"delta": 0.0}),
            ("limits", {"epsilon": 1e-3}, {"epsilon": 0.0}),
            ("limits", {"epsilon_a_run": 1e-3}, {"epsilon_a_run": 0.0}),
            ("allow", {"most_rounds": 1}, {"most_rounds": 0}),
            ("allow", {"most_steps": 1}, {"most_steps": 0}),
            ("allow", {"most_steps": 1_000_000}, {"most_steps": 1_000_001}),
            ("allow", {"most_bytes": 65_536}, {"most_bytes": 65_535}),
            ("allow", {"most_bytes": 17_179_869_184}, {"most_bytes": 17_179_869_185}),
            ("allow", {"largest_sampling_rate": 1.0}, {"largest_sampling_rate": 1.01}),
            ("allow", {"least_noise_multiplier": 1e-3}, {"least_noise_multiplier": 0.0}),
            ("allow", {"largest_clip": 1e-3}, {"largest_clip": 0.0}),
            ("tell", {"size": {"rounded": 2}}, {"size": {"rounded": 1}}),
            ("tell", {"size": {"constant": 1}}, {"size": {"constant": 0}}),
            ("tell", {"every": 3600.0}, {"every": 3601.0}),
            ("split", {"client": 0, "clients": 1}, {"client": 0, "clients": 0}),
            ("split", {"client": 0, "seed": 2**63 - 1}, {"client": 0, "seed": 2**63}),
        ],
    )
    def test_numbers_end_where_they_do(
        self, tmp_path: Path, section: str, good: dict[str, Any], wrong: dict[str, Any]
    ) -> None:
        read(new_node(tmp_path / "good", **{section: good}))
        with pytest.raises(DpflError):
            read(new_node(tmp_path / "wrong", **{section: wrong}))

    def test_a_policy_that_was_read_does_not_change(self, tmp_path: Path) -> None:
        policy = read(new_node(tmp_path / "b"))
        with pytest.raises(Exception, match="frozen"):
            policy.allow.most_steps = 10**6  # type: ignore[misc]
