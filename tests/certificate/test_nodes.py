"""Statements of nodes and the page of a certificate, made by hand: borders that whole runs do not
reach.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfl.certificate.nodes import (
    ExpectedNodes,
    NodeStatementFile,
    OrderedReleases,
    _check_statement,
    _listed_releases,
    _releases,
    _together,
    verify_nodes,
)
from dpfl.data.remote_federation import NODES
from dpfl.privacy.accounting.events import encode, gaussian
from tests.certificate.by_hand import account, certificate

LINE, OTHER = encode(gaussian(1.0)), encode(gaussian(2.0))


def given(
    name: str = "a", made: int | None = 2, everything: Any = 2, **changes: Any
) -> NodeStatementFile:
    words: dict[str, Any] = {
        "node": name,
        "public_key": name * 64,
        "unit": "sample",
        "neighbours": "add/remove one",
        "delta": 1e-5,
        "proven": 1.0,
        "limit": 2.0,
        "accountant": "rdp",
        "adversary": "everybody",
        "releases": {LINE: everything},
        "run": None if made is None else {"id": "r", "releases": {LINE: made}},
    }
    return NodeStatementFile(Path(f"{name}.json"), words | changes)


def expected(
    *names: str, nodes: int | None = None, releases: int = 2, exact: bool = True
) -> ExpectedNodes:
    orders = {name: OrderedReleases({LINE: releases}, exact) for name in names}
    return ExpectedNodes(list(names), len(names) if nodes is None else nodes, {}, orders)


class TestTogether:
    def findings(self, some: list[NodeStatementFile], of: ExpectedNodes) -> tuple[str, ...]:
        return _together(some, of).findings

    def test_every_node_once(self) -> None:
        assert self.findings([given("a"), given("b")], expected("a", "b")) == ()
        assert "given twice" in self.findings([given("a"), given("a")], expected("a"))[0]
        assert (
            "signed with the same key"
            in self.findings([given("a"), given("b", public_key="a" * 64)], expected("a", "b"))[0]
        )
        assert self.findings([given("a")], expected("a", "b")) == (
            "The statement of b, which took part in the run, is missing.",
        )

    def test_statements_of_two_runs(self) -> None:
        other = given("b", run={"id": "another", "releases": {}})
        assert self.findings([given("a"), other], expected("a", "b")) == (
            "The statements are for 2 different runs.",
        )
        none = given("b", made=None)
        assert self.findings([given("a"), none], expected("a", "b")) == ()
        assert self.findings([none, given("c", made=None)], expected("b", "c")) == ()

    def test_where_names_are_not_known_they_are_counted(self) -> None:
        assert self.findings([given("a"), given("b")], expected(nodes=2)) == ()
        assert self.findings([given("a")], expected(nodes=2)) == (
            "1 of 2 nodes have a statement here.",
        )


class TestReleases:
    def faults(self, statement_file: NodeStatementFile, order: OrderedReleases) -> list[str]:
        return list(_releases(statement_file, order))

    def test_as_many_as_were_ordered(self) -> None:
        assert self.faults(given(made=1, everything=1), OrderedReleases({LINE: 1})) == []
        assert self.faults(given(), OrderedReleases({LINE: 2})) == []
        assert len(self.faults(given(), OrderedReleases({LINE: 1}))) == 1
        assert len(self.faults(given(), OrderedReleases({LINE: 3}))) == 1
        assert self.faults(given(), OrderedReleases({LINE: 3}, exact=False)) == []
        assert len(self.faults(given(), OrderedReleases({LINE: 1}, exact=False))) == 1
        assert len(self.faults(given(), OrderedReleases({LINE: 2, OTHER: 1}))) == 1
        assert len(self.faults(given(), OrderedReleases({OTHER: 1}, exact=False))) == 1

    def test_no_more_for_a_run_than_for_all_runs(self) -> None:
        assert self.faults(given(made=2, everything=5), OrderedReleases({LINE: 2})) == []
        assert (
            "for all of its runs"
            in self.faults(given(made=2, everything=1), OrderedReleases({LINE: 2}))[0]
        )

    @pytest.mark.parametrize("odd", [0, -1, 1.0, True, "1"])
    def test_counts_are_whole_numbers_above_0(self, odd: Any) -> None:
        for one in (given(made=odd), given(everything=odd)):
            assert self.faults(one, OrderedReleases({LINE: 2})) == [
                "has counts of releases that are not positive integers"
            ]

    def test_what_an_account_lists_is_exact_where_no_other_run_is_counted_with_it(self) -> None:
        assert _listed_releases(account(), exact=True).exact
        assert not _listed_releases(account(), exact=False).exact
        assert not _listed_releases(account(other_runs=1), exact=True).exact


def test_a_node_that_made_fewer_is_said_to_be_unchecked_where_nobody_can_tell() -> None:
    exact = _check_statement(given(), certificate(), expected("a"))
    rough = _check_statement(given(), certificate(), expected("a", releases=3, exact=False))
    assert (exact.findings, exact.not_checked) == ((), ())
    assert (rough.findings, len(rough.not_checked)) == ((), 1)
    assert "had no node a" in _check_statement(given(), certificate(), expected("b")).findings[0]
    assert "2 releases for this run" in exact.outcome
    assert "0 releases for this run" in given(made=None).text


def test_statements_that_were_not_given_are_named() -> None:
    accounts = [account(name=name, ledger=f"{name}.sqlite") for name in ("a", "b")]
    over_nodes = certificate(
        accounts=accounts, trained=certificate().trained.model_copy(update={"partition": NODES})
    )
    (check,) = verify_nodes([], over_nodes, None)
    assert check.not_checked[0].endswith("were not given: a, b.")
    assert verify_nodes([], certificate(), None) == []
