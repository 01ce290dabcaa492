"""`dpfl node check`, part by part."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpfl.errors import DpflError
from dpfl.node.checks import readiness
from dpfl.node.disclosures import describe_disclosures, describe_protection
from dpfl.node.load_data import load_node_data
from dpfl.node.policy import read
from dpfl.privacy import Ledger
from dpfl.privacy.accounting.events import ADD_REMOVE, REPLACE
from dpfl.protocol.keys import load_public
from tests.node.loopback import (
    EVENT,
    new_node,
    write_policy,
)


class TestCheck:
    """`dpfl node check`, part by part."""

    def policy(self, folder: Path, **changes: Any) -> Any:
        return read(new_node(folder / "b", **changes))

    def ledger(self, policy: Any, neighbours: str = ADD_REMOVE, unit: str = "sample") -> Ledger:
        return Ledger.open(policy.ledgers / "b.sqlite", "b", unit, neighbours, policy.limit)

    @pytest.mark.parametrize("kind", [{"neighbours": REPLACE}, {"unit": "client"}])
    def test_a_ledger_of_another_kind_is_named(self, tmp_path: Path, kind: dict[str, str]) -> None:
        policy = self.policy(tmp_path)
        policy.ledgers.mkdir()
        self.ledger(policy, **kind).close()
        with pytest.raises(DpflError):
            readiness._ledger(policy, load_node_data(policy))

    def test_one_debit_that_is_later_than_the_clock_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import time

        policy, now = self.policy(tmp_path), 1_800_000_000.0
        policy.ledgers.mkdir()
        with closing(self.ledger(policy)) as ledger:
            for at, name in ((now, "a"), (now + 7200, "b")):
                monkeypatch.setattr(time, "time", lambda at=at: at)
                ledger.debit("run", name, EVENT, 1)
        monkeypatch.setattr(time, "time", lambda: now + 7200)
        assert readiness._clock(policy).startswith("2027-01-15")
        monkeypatch.setattr(time, "time", lambda: now + 3600)
        with pytest.raises(DpflError, match="later than this machine's clock"):
            readiness._clock(policy)
        monkeypatch.setattr(time, "time", lambda: 1e9)
        with pytest.raises(DpflError, match="years behind"):
            readiness._clock(policy)

    def test_what_stays_and_what_leaves_follows_what_is_told(self, tmp_path: Path) -> None:
        usual, bare = (
            self.policy(tmp_path / "usual"),
            self.policy(tmp_path / "bare", tell={"bare": True}),
        )
        trusted = self.policy(tmp_path / "trusted", tell={"trusted": True})
        noisy = "unless they have noise that the ledger pays for"
        assert [
            any(noisy in line for line in describe_protection(one))
            for one in (usual, bare, trusted)
        ] == [True, False, False]
        left = ["\n".join(describe_disclosures(one)) for one in (usual, bare, trusted)]
        assert ["WITHOUT ANY NOISE" in text for text in left] == [False, True, False]
        assert ["CLIPPED UPDATES WITHOUT NOISE" in text for text in left] == [False, False, True]
        assert (
            "epsilon at most 30 in all, at delta 1e-05 by rdp, for one sample (add/remove one)"
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
            readiness._server(self.policy(tmp_path, server={"address": address}))
