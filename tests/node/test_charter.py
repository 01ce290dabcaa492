"""A policy: what is written holds, what is not written is refused, and anything wrong is one
sentence that names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfl.errors import DpflError
from dpfl.node.load_data import digest, load_node_data
from dpfl.node.policy import SEED, SecureSumGroup, read
from dpfl.privacy import Keyed, Limit, SystemEntropy
from dpfl.privacy.ledger.limit import SubLimit
from tests.node.loopback import POLICY, SAMPLES, new_node, write_policy


def test_a_policy_refuses_by_default_whatever_it_does_not_name(tmp_path: Path) -> None:
    charter = read(new_node(tmp_path / "b", allow={"systems": None, "models": None}))
    assert charter.allow.systems == charter.allow.models == ()
    assert charter.allow.variants == ("sound",)
    assert (charter.policy.trusted, charter.policy.bare, charter.policy.raw) == (
        False,
        False,
        False,
    )
    assert charter.tell.secure
    assert isinstance(charter.randomness, SystemEntropy)
    assert charter.limit == Limit(30.0, 1e-5, "rdp")
    assert charter.shares("run") == ()


def test_what_a_policy_leaves_out_is_what_the_documentation_says(tmp_path: Path) -> None:
    """A default is a promise: an owner who leaves a line out has read what holds then."""
    limits = {"accountant": None}
    charter = read(
        new_node(
            tmp_path / "b", allow=dict.fromkeys(POLICY["allow"]), limits=limits, split={"client": 0}
        )
    )
    assert charter.allow.model_dump() == {
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
    assert charter.tell.model_dump() == {
        "size": "exact",
        "trusted": False,
        "bare": False,
        "secure": True,
        "every": 0.0,
        "entropy": "system",
    }
    assert charter.limits.model_dump() == {
        "epsilon": 30.0,
        "delta": 1e-5,
        "epsilon_a_year": None,
        "epsilon_a_run": None,
        "accountant": "pld",
        "unit": "sample",
        "neighbours": "add/remove one",
    }
    assert charter.server.model_dump() == {
        "address": "127.0.0.1:9092",
        "ca": "ca.crt",
        "key": "carrier.key",
        "watch": 0,
    }
    assert charter.split is not None
    assert charter.split.model_dump() == {
        "client": 0,
        "partition": "iid",
        "clients": 10,
        "seed": 0,
        "options": {},
    }
    secure = SecureSumGroup(members={"a": "", "b": ""})
    assert (secure.least_survivors, secure.least_colluders) == (3, 1)
    assert (charter.secure, charter.witness, charter.key.name) == (None, None, "node.pem")


def test_limits_a_year_and_a_run_are_shares(tmp_path: Path) -> None:
    charter = read(new_node(tmp_path / "b", limits={"epsilon_a_year": 4.0, "epsilon_a_run": 2.0}))
    year, run = (Limit(epsilon, 1e-5, "rdp") for epsilon in (4.0, 2.0))
    assert charter.shares("x") == (SubLimit(year, days=365.0), SubLimit(run, run="x"))


@pytest.mark.parametrize(
    ("size", "units", "said"),
    [("exact", 61, 61), ({"rounded": 50}, 61, 100), ({"constant": 7}, 61, 7)],
)
def test_sizes_are_declared_as_it_says(tmp_path: Path, size: Any, units: int, said: int) -> None:
    assert read(new_node(tmp_path / "b", tell={"size": size})).declared(units) == said


def test_a_seed_counts_only_where_the_environment_has_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SEED, "7")
    assert isinstance(read(new_node(tmp_path / "a")).randomness, SystemEntropy)
    assert read(new_node(tmp_path / "b", tell={"entropy": "keyed"})).randomness == Keyed(7)


def test_data_is_read_by_its_own_words_and_is_this_node_s_alone(tmp_path: Path) -> None:
    own = load_node_data(read(new_node(tmp_path / "b")))
    assert (len(own.train), own.names, own.test, own.sizes) == (SAMPLES, ("b",), None, (SAMPLES,))
    dealt = load_node_data(read(write_policy(tmp_path / "b", split={"client": 2, "clients": 4})))
    assert len(dealt.train) == SAMPLES // 4
    site = load_node_data(
        read(
            write_policy(
                tmp_path / "b",
                data={"name": "randhie", "classes": None},
                split={"client": 1, "partition": "site"},
            )
        )
    )
    assert site.train.schema is not None
    assert site.persons is not None
    assert len(site.persons) == len(site.train)


def test_persons_are_counted_where_they_are_the_unit(tmp_path: Path) -> None:
    words = {
        "data": {"name": "randhie", "classes": None, "rows_per_person": 2},
        "split": {"client": 1, "partition": "site"},
    }
    own = load_node_data(read(new_node(tmp_path / "b", limits={"unit": "person"}, **words)))
    assert own.counted("person")[0] < own.sizes[0]
    assert own.rows_per_person == 2
    assert digest(own, "person") != digest(own, "sample")
    with pytest.raises(DpflError, match="whose each row is"):
        load_node_data(read(new_node(tmp_path / "c", limits={"unit": "person"})))


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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": {"name": None}}, "data.name"),
        ({"data": {"name": "nothing.npz"}}, "nothing.npz"),
        ({"data": {"more": 1}}, "no option 'more'"),
        ({"split": {"client": 9, "clients": 4}}, "split.client"),
        ({"split": {"client": "who", "clients": 4}}, "split.client"),
    ],
)
def test_data_that_is_not_there_is_one_sentence(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(DpflError) as refused:
        load_node_data(read(new_node(tmp_path / "b", **changes)))
    assert said in str(refused.value)
