"""Ledgers and certificates, for whoever signs for the privacy of runs. It writes nothing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from dpfl.certificate import verify
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, accountant
from dpfl.privacy.accounting.accountant import default_accountant
from dpfl.privacy.accounting.events import decode, describe
from dpfl.privacy.ledger.client_ledgers import ledger_files, ledger_path
from dpfl.privacy.ledger.plans import proven_events
from dpfl.privacy.statement import figure
from dpfl.privacy.statement_view import GuaranteeView
from dpfl.run.over_nodes.nodes import STATEMENTS
from dpfl.run.records.folder import RunFolder
from dpfl.run.records.record_file import recorded_ledgers
from dpfl.views.budget_view import BudgetView
from dpfl.web.run_index import RunIndex
from dpfl.web.run_line import heads

SHOWN_DEBITS = 100
MOST_LEDGERS = 1000


def ledgers_of(index: RunIndex, folder: RunFolder) -> dict[str, Any]:
    """Lists the ledgers of a run.

    Args:
        index: The folder of runs.
        folder: The folder of the run.

    Returns:
        Their owners, or the place outside the folder of runs where they are.
    """
    place = _place(index, folder)
    if isinstance(place, str):
        return {"owners": [], "elsewhere": place}
    files = ledger_files(place)
    owners = sorted(path.stem for path in files if path.resolve().is_relative_to(index.root))
    return {"owners": owners[:MOST_LEDGERS], "elsewhere": None}


def _place(index: RunIndex, folder: RunFolder) -> Path | str:
    resolved_section = heads(folder.file("experiment.toml"), ("resolved",))["resolved"]
    place = recorded_ledgers(resolved_section, folder.ledgers)
    try:
        inside = place.resolve().is_relative_to(index.root)
    except (OSError, ValueError):
        inside = False
    return place if inside else str(place)


def ledger_view(index: RunIndex, folder: RunFolder, owner: str) -> dict[str, Any]:
    """Reads a ledger and checks its hash chain.

    Args:
        index: The folder of runs.
        folder: The folder of the run.
        owner: Whose ledger it is.

    Returns:
        What it has spent, its limit, what remains, and its last debits.

    Raises:
        DpflError: If there is no such ledger here, or its chain is broken.
    """
    place = _place(index, folder)
    if isinstance(place, str) or owner not in ledgers_of(index, folder)["owners"]:
        raise DpflError(f"There is no ledger of {owner[:80]!r} here.")
    with closing(Ledger.read(ledger_path(place, owner))) as ledger:
        limit, spending, most, debits = (
            ledger.limit,
            ledger.spending(),
            proven_events(ledger),
            ledger.debits(),
        )
        account, limits = ledger.account, ledger.limits_since_first_debit()
    delta = limit.delta if limit else float(_delta(folder))
    by = limit.accountant if limit else default_accountant(next(iter(spending), None))
    used_epsilon, proven_epsilon = (
        accountant(by).epsilon(events, delta) for events in (spending, most)
    )
    statement = {"proven": figure(proven_epsilon), "unit": account.unit, "delta": delta}
    epsilon_limit = limit.epsilon if limit else None
    budget = BudgetView.of(used_epsilon, epsilon_limit, GuaranteeView.of(statement), proven_epsilon)
    return {
        "owner": account.owner,
        "budget": budget.to_dict(),
        "neighbours": account.neighbours,
        "accountant": by,
        "spent": figure(used_epsilon),
        "limit": epsilon_limit,
        "limits": [None if past_limit is None else past_limit.epsilon for past_limit in limits],
        "releases": [{"kind": describe(event), "count": n} for event, n in spending.items()],
        "debits": len(debits),
        "runs": sorted({run for run, *_ in debits}),
        "last": [{"run": run, "kind": describe(decode(event)), "count": count, "at": at}
                 for run, _, event, count, at in debits[-SHOWN_DEBITS:][::-1]],
    }  # fmt: skip


def _delta(folder: RunFolder) -> float:
    budget = heads(folder.file("experiment.toml"), ("resolved", "resolved.budget"))["resolved"].get(
        "budget", {}
    )
    return budget.get("delta", 1e-5)


def verdict(index: RunIndex, folder: RunFolder) -> dict[str, Any]:
    """Verifies the certificate of a run, as `dpfl verify` does.

    Args:
        index: The folder of runs.
        folder: The folder of the run.

    Returns:
        The outcome of every check, and who signed.

    Raises:
        DpflError: If the ledgers of the run are elsewhere.
    """
    if isinstance(_place(index, folder), str):
        raise DpflError(
            "The ledgers of this run are elsewhere. Check its certificate with: dpfl verify"
        )
    statements = sorted(folder.file(STATEMENTS).glob("*.json"))[:MOST_LEDGERS]
    outcome = verify(folder.file("certificate.json"), folder.path, nodes=statements)
    certificate = outcome.certificate
    signer = certificate.signer.fingerprint if certificate else None
    return outcome.to_dict() | {
        "signer": signer,
        "issued": certificate.issued if certificate else None,
    }
