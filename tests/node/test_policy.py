"""A policy: what is written holds, what is not written is refused, and anything wrong is one
sentence that names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfl.errors import DpflError
from dpfl.node.policy import SEED, read
from dpfl.node.policy_sections import SecureSumGroup
from dpfl.privacy import Keyed, Limit, SystemEntropy
from dpfl.privacy.ledger.limit import SubLimit
from tests.node.loopback import POLICY, new_node


def test_a_policy_refuses_by_default_whatever_it_does_not_name(tmp_path: Path) -> None:
    policy = read(new_node(tmp_path / "b", allow={"systems": None, "models": None}))
    assert policy.allow.systems == policy.allow.models == ()
    assert policy.allow.variants == ("sound",)
    assert (
        policy.disclosure_rules.trusted,
        policy.disclosure_rules.bare,
        policy.disclosure_rules.raw,
    ) == (
        False,
        False,
        False,
    )
    assert policy.tell.secure
    assert isinstance(policy.randomness, SystemEntropy)
    assert policy.limit == Limit(30.0, 1e-5, "rdp")
    assert policy.sub_limits("run") == ()


def test_what_a_policy_leaves_out_is_what_the_documentation_says(tmp_path: Path) -> None:
    """A default is a promise: an owner who leaves a line out has read what holds then."""
    limits = {"accountant": None}
    policy = read(
        new_node(
            tmp_path / "b", allow=dict.fromkeys(POLICY["allow"]), limits=limits, split={"client": 0}
        )
    )
    assert policy.allow.model_dump() == {
        "systems": (),
        "models": (),
        "own_models": {},
        "variants": ("sound",),
        "least_noise_multiplier": 0.3,
        "largest_clip": 10.0,
        "largest_weight": 10_000.0,
        "largest_sampling_rate": 0.5,
        "most_steps": 1000,
        "most_rounds": 1000,
        "most_bytes": 256 * 1024**2,
        "most_memory": 4 * 1024**3,
    }
    assert policy.tell.model_dump() == {
        "size": "exact",
        "trusted": False,
        "bare": False,
        "secure": True,
        "every": 0.0,
        "entropy": "system",
    }
    assert policy.limits.model_dump() == {
        "epsilon": 30.0,
        "delta": 1e-5,
        "epsilon_a_year": None,
        "epsilon_a_run": None,
        "accountant": "pld",
        "unit": "sample",
        "neighbours": "add/remove one",
    }
    assert policy.server.model_dump() == {
        "address": "127.0.0.1:9092",
        "ca": "ca.crt",
        "key": "carrier.key",
        "watch": 0,
    }
    assert policy.split is not None
    assert policy.split.model_dump() == {
        "client": 0,
        "partition": "iid",
        "clients": 10,
        "seed": 0,
        "options": {},
    }
    secure = SecureSumGroup(members={"a": "", "b": ""})
    assert (secure.least_survivors, secure.least_colluders) == (3, 1)
    assert (policy.secure, policy.witness, policy.key.name) == (None, None, "node.pem")


def test_limits_a_year_and_a_run_are_shares(tmp_path: Path) -> None:
    policy = read(new_node(tmp_path / "b", limits={"epsilon_a_year": 4.0, "epsilon_a_run": 2.0}))
    year, run = (Limit(epsilon, 1e-5, "rdp") for epsilon in (4.0, 2.0))
    assert policy.sub_limits("x") == (SubLimit(year, days=365.0), SubLimit(run, run="x"))


@pytest.mark.parametrize(
    ("size", "units", "said"),
    [("exact", 61, 61), ({"rounded": 50}, 61, 100), ({"constant": 7}, 61, 7)],
)
def test_sizes_are_declared_as_it_says(tmp_path: Path, size: Any, units: int, said: int) -> None:
    assert read(new_node(tmp_path / "b", tell={"size": size})).declared_size(units) == said


def test_a_seed_counts_only_where_the_environment_has_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEED, "7")
    assert isinstance(read(new_node(tmp_path / "a")).randomness, SystemEntropy)
    assert read(new_node(tmp_path / "b", tell={"entropy": "keyed"})).randomness == Keyed(7)


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "no owner": ({"owners": None}, "has no owners"),
    "no key": ({"owners": {"study": "abc"}}, "owners.study is no public key"),
    "no limit": ({"limits": {"epsilon": None}}, "has no limits.epsilon"),
    "no delta": ({"limits": {"delta": None}}, "has no limits.delta"),
    "no size": ({"tell": {"size": None}}, "has no tell.size"),
    "a word that is not one": ({"allow": {"most_step": 3}}, "did you mean 'most_steps'"),
    "a section that is not one": ({"limit": {"epsilon": 3.0}}, "did you mean 'limits'"),
    "a truth value for a number": ({"limits": {"epsilon": True}}, "limits.epsilon"),
    "infinity": ({"limits": {"epsilon": float("inf")}}, "limits.epsilon"),
    "no accountant": ({"limits": {"accountant": "gdp-clt"}}, "cannot guard a budget"),
    "a year of nothing": ({"limits": {"epsilon_a_year": 0.0}}, "epsilon_a_year"),
    "no unit": ({"limits": {"unit": "row"}}, "limits.unit"),
    "no model": ({"allow": {"models": ["cnnn"]}}, "There is no model 'cnnn'; did you mean 'cnn'"),
    "a path among models": ({"allow": {"models": ["os:system"]}}, "own_models"),
    "a name among paths": ({"allow": {"own_models": {"cnn": {}}}}, "package.module:factory"),
    "raw values": ({"tell": {"raw": True}}, "tell.raw"),
    "a name that is no file's": ({"name": "../a"}, "cannot be a client's name"),
    "a letter too small": ({"allow": {"most_bytes": 10}}, "most_bytes"),
}


@pytest.mark.parametrize("what", ODD)
def test_what_is_wrong_in_a_policy_is_one_sentence(tmp_path: Path, what: str) -> None:
    changes, said = ODD[what]
    with pytest.raises(DpflError) as refused:
        read(new_node(tmp_path / "b", **changes))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["name = ", "a = " + "[" * 2000, "\x00"])
def test_a_policy_that_is_no_toml_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(DpflError, match="The policy"):
        read(tmp_path)
