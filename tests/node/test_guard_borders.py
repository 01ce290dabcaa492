"""What a node accepts and refuses just at the borders of its policy, asked of the guard itself."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpfl.client.task import ClientTask
from dpfl.errors import DpflError
from dpfl.models import FlatModel
from dpfl.node import readiness
from dpfl.node.budget_checks import affordable_releases, is_affordable
from dpfl.node.disclosures import describe_disclosures, describe_protection
from dpfl.node.folder import open_ledger as open_node_ledger
from dpfl.node.load_data import load_node_data
from dpfl.node.policy import read
from dpfl.node.policy_checker import PolicyChecker
from dpfl.privacy import FixedSize, Flat, Ledger, Limit, Poisson, Release, accountant
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE
from dpfl.privacy.ledger.chain import ChainTail
from dpfl.privacy.ledger.client_ledgers import ledger_path
from dpfl.privacy.ledger.limit import SubLimit
from dpfl.privacy.mechanisms.sampling import All, FixedCohort, PoissonSize
from dpfl.privacy.mechanisms.secure_noise import SecureGaussian
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.protocol.keys import load_public
from dpfl.refusals import ProtocolError
from tests.conftest import MODEL
from tests.node.loopback import (
    EVENT,
    PROPOSAL,
    ROUNDS,
    SAMPLES,
    TASK,
    new_node,
    round_of,
    write_policy,
)
from tests.privacy.exact import poisson
from tests.privacy.workers import open_ledger

LAYOUT = FlatModel(MODEL.build((1, 28, 28), 10, 0)).layout
REPLACING = {"limits": {"neighbours": REPLACE}, "allow": {"largest_sampling_rate": 1.0}}


def guard(folder: Path, **changes: Any) -> PolicyChecker:
    charter = read(new_node(folder / "b", **changes))
    return PolicyChecker(charter, load_node_data(charter), "ab" * 32)


def refusal(of: PolicyChecker, task: ClientTask, size: int = SAMPLES, **proposed: Any) -> str:
    """The word that a task is refused by; empty where it is done."""
    try:
        of.check_task(task, replace(PROPOSAL, **proposed), LAYOUT, size)
        return ""
    except ProtocolError as bad:
        return str(bad.reason)


def stepping(sampling: Any, noise: float = 1.0, level: float = 1.0) -> ClientTask:
    return replace(TASK, samples=Release(sampling, Flat(level), SecureGaussian(noise)))


def test_steps_rounds_noise_clip_and_rate_end_where_the_policy_does(tmp_path: Path) -> None:
    """At most 4 steps, 10 rounds (and 5 of the run), noise 0.8, clip 2, half of the samples."""
    own = guard(tmp_path)
    for task, reason in (
        (replace(TASK, steps=4), ""),
        (replace(TASK, steps=5), "too-many-steps"),
        (round_of(ROUNDS - 1), ""),
        (round_of(ROUNDS), "too-many-rounds"),
        (stepping(Poisson(0.2), noise=0.8), ""),
        (stepping(Poisson(0.2), noise=0.79), "too-little-noise"),
        (stepping(Poisson(0.2), level=2.0), ""),
        (stepping(Poisson(0.2), level=2.01), "clip-too-large"),
        (stepping(Poisson(0.5)), ""),
        (stepping(Poisson(0.51)), "rate-too-high"),
        (replace(TASK, client=0), "wrong-node"),
    ):
        assert refusal(own, task) == reason, task
    assert refusal(own, round_of(9), rounds=None) == ""
    assert refusal(own, round_of(10), rounds=None) == "too-many-rounds"


@pytest.mark.parametrize("sampling", [PoissonSize(10), FixedCohort(10)])
def test_samples_are_drawn_in_ways_that_are_made_for_samples(tmp_path: Path, sampling: Any) -> None:
    changes = REPLACING if sampling.neighbours == REPLACE else {}
    assert refusal(guard(tmp_path, **changes), stepping(sampling)) == "uncovered"


def test_a_draw_of_fixed_size_needs_the_exact_number_and_as_many_samples(tmp_path: Path) -> None:
    own = guard(tmp_path, **REPLACING)
    proposed = {"neighbours": REPLACE}
    assert refusal(own, stepping(FixedSize(SAMPLES)), **proposed) == ""
    assert refusal(own, stepping(FixedSize(SAMPLES + 1)), **proposed) == "rate-too-high"
    assert refusal(own, stepping(FixedSize(5)), size=SAMPLES + 1, **proposed) == "size-not-exact"
    rounded = guard(tmp_path / "other", **REPLACING, tell={"size": {"constant": SAMPLES}})
    assert refusal(rounded, stepping(FixedSize(5)), **proposed) == "size-not-exact"
    assert refusal(own, stepping(All()), **proposed) == "other-unit"


def test_columns_that_samples_do_not_have_are_not_asked_for(tmp_path: Path) -> None:
    own = guard(tmp_path)
    for places, binned, numbers, reason in (
        ((0, 783), (), 784, ""),
        ((0, 784), (), 784, "other-schema"),
        ((0,), ((784, 4),), 784, "other-schema"),
        ((784, 0), (), 784, "other-schema"),
        ((0,), (), 785, "other-schema"),
        ((), (), 784, "other-schema"),
    ):
        survey = ColumnQuery(5.0, numbers, places, binned, secure=True)
        assert refusal(own, replace(TASK, steps=0, samples=None, query=survey)) == reason, (
            places,
            binned,
            numbers,
        )


def test_surveys_have_noise_enough_and_are_for_adding_one(tmp_path: Path) -> None:
    own = guard(tmp_path)
    for noise, secure, reason in (
        (0.8, True, ""),
        (0.79, True, "too-little-noise"),
        (5.0, False, "not-secure"),
    ):
        survey = ColumnQuery(noise, 784, (0,), secure=secure)
        assert refusal(own, replace(TASK, steps=0, samples=None, query=survey)) == reason
    replacing = guard(tmp_path / "other", limits={"neighbours": REPLACE})
    survey = ColumnQuery(5.0, 784, (0,), secure=True)
    assert refusal(replacing, replace(TASK, steps=0, samples=None, query=survey)) == "other-unit"


class TestRoom:
    """How many releases of a run fit beside what was spent, with events of one kind and of
    several.
    """

    SMALL = poisson(0.1, 3.0)

    def cost(self, spent: dict[Any, int], delta: float = 1e-5) -> float:
        return float(accountant("rdp").epsilon(spent, delta))

    @pytest.fixture
    def ledger(self, tmp_path: Path):
        with closing(open_ledger(tmp_path / "b.sqlite")) as opened:
            yield opened

    @pytest.mark.parametrize("epsilon", [1.0, 3.0, 1e5])
    def test_of_one_kind(self, ledger: Ledger, epsilon: float) -> None:
        ledger.debit("before", "a", self.SMALL, 3)
        left = affordable_releases(ledger, "run", PROPOSAL, Limit(epsilon, 1e-5, "rdp"), ())
        assert left <= ROUNDS * 2
        if left:
            assert self.cost({self.SMALL: 3, EVENT: left}) <= epsilon
        if left < ROUNDS * 2:
            assert self.cost({self.SMALL: 3, EVENT: left + 1}) > epsilon

    @pytest.mark.parametrize("epsilon", [0.7, 1.0, 2.0, 3.0, 1e5])
    def test_of_two_kinds_in_their_order(self, ledger: Ledger, epsilon: float) -> None:
        ledger.debit("before", "a", self.SMALL, 3)
        proposal = replace(PROPOSAL, events=((self.SMALL, 4), (EVENT, 6)))
        left = affordable_releases(ledger, "run", proposal, Limit(epsilon, 1e-5, "rdp"), ())
        costs = [self.cost({self.SMALL: 3 + min(n, 4), EVENT: max(0, n - 4)}) for n in range(11)]
        assert left == max((n for n in range(11) if costs[n] <= epsilon), default=0)

    def test_what_the_run_itself_spent_is_not_counted_against_it_twice(
        self, ledger: Ledger
    ) -> None:
        ledger.debit("run", "a", EVENT, 4)
        limit = Limit(self.cost({EVENT: ROUNDS * 2}) * (1 + 1e-9), 1e-5, "rdp")
        assert affordable_releases(ledger, "run", PROPOSAL, limit, ()) == ROUNDS * 2
        assert affordable_releases(ledger, "another", PROPOSAL, limit, ()) == ROUNDS * 2 - 4

    def test_shares_count_beside_the_limit_in_all(self, ledger: Ledger) -> None:
        wide, three = (
            Limit(1e5, 1e-5, "rdp"),
            Limit(self.cost({EVENT: 3}) * (1 + 1e-9), 1e-5, "rdp"),
        )
        ledger.debit("before", "a", EVENT, 1)
        assert (
            affordable_releases(ledger, "run", PROPOSAL, wide, (SubLimit(three, run="run"),)) == 3
        )
        assert affordable_releases(ledger, "run", PROPOSAL, wide, (SubLimit(three, days=365),)) == 2
        assert is_affordable(ledger, EVENT, 2, wide, (SubLimit(three, days=365),), 0)
        assert not is_affordable(ledger, EVENT, 3, wide, (SubLimit(three, days=365),), 0)
        assert not is_affordable(
            ledger, EVENT, 1, Limit(self.cost({EVENT: 1}) * (1 + 1e-9), 1e-5, "rdp"), (), 5
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
        charter = read(new_node(tmp_path / "b"))
        with pytest.raises(Exception, match="frozen"):
            charter.allow.most_steps = 10**6  # type: ignore[misc]


def test_a_ledger_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    charter = read(new_node(tmp_path / "b"))
    data = load_node_data(charter)
    with closing(open_node_ledger(charter, data, ChainTail())) as ledger:
        seen = ledger.tail
    path = ledger_path(charter.ledgers, "b")
    open_node_ledger(charter, data, seen).close()
    path.unlink()
    with pytest.raises(DpflError, match="is gone, and what it held was spent"):
        open_node_ledger(charter, data, seen)
    assert not path.exists()


class TestCheck:
    """`dpfl node check`, part by part."""

    def charter(self, folder: Path, **changes: Any) -> Any:
        return read(new_node(folder / "b", **changes))

    def ledger(self, charter: Any, neighbours: str = ADD_REMOVE, unit: str = "sample") -> Ledger:
        return Ledger.open(charter.ledgers / "b.sqlite", "b", unit, neighbours, charter.limit)

    @pytest.mark.parametrize("kind", [{"neighbours": REPLACE}, {"unit": "client"}])
    def test_a_ledger_of_another_kind_is_named(self, tmp_path: Path, kind: dict[str, str]) -> None:
        charter = self.charter(tmp_path)
        charter.ledgers.mkdir()
        self.ledger(charter, **kind).close()
        with pytest.raises(DpflError):
            readiness._ledger(charter, load_node_data(charter))

    def test_one_debit_that_is_later_than_the_clock_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import time

        charter, now = self.charter(tmp_path), 1_800_000_000.0
        charter.ledgers.mkdir()
        with closing(self.ledger(charter)) as ledger:
            for at, name in ((now, "a"), (now + 7200, "b")):
                monkeypatch.setattr(time, "time", lambda at=at: at)
                ledger.debit("run", name, EVENT, 1)
        monkeypatch.setattr(time, "time", lambda: now + 7200)
        assert readiness._clock(charter).startswith("2027-01-15")
        monkeypatch.setattr(time, "time", lambda: now + 3600)
        with pytest.raises(DpflError, match="later than this machine's clock"):
            readiness._clock(charter)
        monkeypatch.setattr(time, "time", lambda: 1e9)
        with pytest.raises(DpflError, match="years behind"):
            readiness._clock(charter)

    def test_what_stays_and_what_leaves_follows_what_is_told(self, tmp_path: Path) -> None:
        usual, bare = (
            self.charter(tmp_path / "usual"),
            self.charter(tmp_path / "bare", tell={"bare": True}),
        )
        trusted = self.charter(tmp_path / "trusted", tell={"trusted": True})
        noisy = "unless they have noise that the ledger pays for"
        assert [
            any(noisy in line for line in describe_protection(one))
            for one in (usual, bare, trusted)
        ] == [True, False, False]
        left = ["\n".join(describe_disclosures(one)) for one in (usual, bare, trusted)]
        assert ["WITHOUT ANY NOISE" in text for text in left] == [False, True, False]
        assert ["CLIPPED UPDATES WITHOUT NOISE" in text for text in left] == [False, False, True]
        assert (
            "epsilon 30 in all at most, at delta 1e-05 by rdp, for one sample (add/remove one)"
            in left[0]
        )

    def test_a_list_of_members_with_another_key_for_this_node_is_named(
        self, tmp_path: Path
    ) -> None:
        keys = {
            name: load_public(new_node(tmp_path / name).parent / "node.pem.pub") for name in "abc"
        }
        good = read(write_policy(tmp_path / "b", secure={"members": keys}))
        assert readiness._members(good).count("(") == 2
        swapped = read(
            write_policy(
                tmp_path / "b", secure={"members": keys | {"b": keys["a"], "a": keys["b"]}}
            )
        )
        with pytest.raises(DpflError, match=r"secure\.members\.b is not this node's own key"):
            readiness._members(swapped)

    @pytest.mark.parametrize(
        "address", ["host", "host:", ":9092", "host:0", "host:65536", "host:port", "host:-1"]
    )
    def test_an_address_without_a_host_or_a_port_is_named(
        self, tmp_path: Path, address: str
    ) -> None:
        with pytest.raises(DpflError, match="give a host and a port"):
            readiness._server(self.charter(tmp_path, server={"address": address}))
