"""`dpfl ledger`: what an owner of data has spent, and how much it allows."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from dpfl.data.names import checked_names
from dpfl.errors import DpflError
from dpfl.privacy import Ledger, Limit, accountant
from dpfl.privacy.accounting.accountant import default_accountant
from dpfl.privacy.accounting.calibration import check_target
from dpfl.privacy.accounting.events import describe
from dpfl.privacy.ledger.client_ledgers import FEDERATION, ledger_path
from dpfl.privacy.ledger.plans import proven_events
from dpfl.privacy.statement import figure, rounded_up

app = typer.Typer(help="Ledgers: what was spent, and what may be.", no_args_is_help=True)


def _ledgers(path: Path) -> list[Path]:
    found = sorted(path.rglob("*.sqlite")) if path.is_dir() else [path]
    found = [file for file in found if file.name != "metrics.sqlite"]
    if not found:
        raise DpflError(f"There is no ledger in {path}.")
    return found


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="A ledger, a folder of them, or a run.")],
    delta: Annotated[
        float | None, typer.Option(help="By default that of the ledger's limit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Epsilon spent of epsilon allowed, by ledger."""
    check_target(1.0, 1e-5 if delta is None else delta)
    rows = [_row(Ledger.read(file), delta) for file in _ledgers(path)]
    if as_json:
        print(json.dumps(rows))
        return
    table = Table(
        "ledger",
        "epsilon spent",
        "unit, neighbours, delta, accountant",
        "releases",
        box=box.SIMPLE_HEAD,
    )
    table.columns[0].no_wrap = table.columns[1].no_wrap = True
    for row in rows:
        allowed = "" if row["allowed"] is None else f" of {row['allowed']:g}"
        spent = _shown(row["epsilon"])
        guarantee = f"{row['unit']}, {row['neighbours']}, {row['delta']:g}, {row['accountant']}"
        releases = (
            "\n".join(f"{count} x {event}" for event, count in row["releases"].items()) or "none"
        )
        beforehand = (
            "" if row["proven"] == row["epsilon"] else f"\n{_shown(row['proven'])} fixed beforehand"
        )
        table.add_row(row["ledger"], spent + allowed + beforehand, guarantee, releases)
    Console().print(table)


def _shown(epsilon: float | str) -> str:
    return f"{rounded_up(epsilon):.4f}" if isinstance(epsilon, float) else epsilon


def _row(ledger: Ledger, delta: float | None) -> dict[str, Any]:
    """What was spent; and what is proven, which is more where a run fixed beforehand what it might
    have come to.
    """
    limit, spent = ledger.limit, ledger.spending()
    at = delta if delta is not None else limit.delta if limit else 1e-5
    by = limit.accountant if limit else default_accountant(next(iter(spent), None))
    row: dict[str, Any] = {
        "ledger": ledger.path.name,
        "unit": ledger.unit,
        "neighbours": ledger.account.neighbours,
        "epsilon": figure(accountant(by).epsilon(spent, at)),
        "proven": figure(accountant(by).epsilon(proven_events(ledger), at)),
        "allowed": limit.epsilon if limit else None,
        "delta": at,
        "accountant": by,
        "releases": {describe(event): count for event, count in spent.items()},
    }
    ledger.close()
    return row


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A ledger, a folder of them, or a run.")],
) -> None:
    """Whether every row is as it was written, and none is missing."""
    for file in _ledgers(path):
        with closing(Ledger.read(file)) as ledger:
            kind = f"one {ledger.unit}, {ledger.account.neighbours}"
            print(
                f"{file.name}: whole; of {ledger.account.owner} ({kind}), {len(ledger.debits())} "
                "debits"
            )


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="A folder with ledgers of other clients.")],
    name: Annotated[str, typer.Argument(help="The client's.")],
) -> None:
    """A ledger for a client that never paid, beside others, with their unit, neighbours and limit.

    Not for one whose ledger is lost: what that held was spent, and whoever starts it anew has to
    lower its limit by as much.
    """
    checked_names([name], 1)
    with closing(Ledger.read(_ledgers(folder)[0])) as ledger:
        account, allowed = ledger.account, ledger.limit
    if account.owner == FEDERATION:
        raise DpflError(f"{folder} holds the federation's one ledger; no client has one there.")
    if (path := ledger_path(folder, name)).exists():
        raise DpflError(f"{path} is there already.")
    Ledger.open(path, name, account.unit, account.neighbours, allowed).close()
    print(f"{path.name}: new, for one {account.unit} ({account.neighbours})")


@app.command()
def limit(
    path: Annotated[Path, typer.Argument(help="A ledger, or a folder of them.")],
    epsilon: Annotated[
        float, typer.Option(help="What may be spent in all, from the first release on.")
    ],
    delta: Annotated[float, typer.Option()] = 1e-5,
    accountant: Annotated[str, typer.Option()] = "pld",
) -> None:
    """Set what an owner allows; earlier limits stay on record."""
    for file in _ledgers(path):
        ledger = Ledger.existing(file)
        ledger.set_limit(Limit(epsilon, delta, accountant))
        ledger.close()
        print(f"{file.name}: epsilon {epsilon:g} at delta {delta:g} by {accountant}")


@app.command()
def reconcile(
    policy: Annotated[
        Path, typer.Argument(help="The policy.toml of a node that does not run, or its folder.")
    ],
    signed: Annotated[
        list[Path] | None,
        typer.Argument(help="What the node signed: statements, or the heads.json of a server."),
    ] = None,
) -> None:
    """Count what a node signed and its ledger lacks, after a disk was set back, a ledger lost, or a
    folder copied.

    The ledger then holds at least all that was signed, as far as the node's folder, its witness and
    the given files show it. It may count a release twice, and never leaves one out that was shown.
    Runs that were under way are over for this node.
    """
    from dpfl.node.folder import lock_folder
    from dpfl.node.load_data import load_node_data
    from dpfl.node.policy import read
    from dpfl.node.reconciliation import reconcile as add_missing
    from dpfl.protocol.keys import load_private

    charter = read(policy)
    with closing(lock_folder(charter.folder)):
        done = add_missing(
            charter, load_private(charter.key), load_node_data(charter), signed or ()
        )
    with closing(Ledger.read(done.path)) as ledger:
        by = accountant(charter.limits.accountant)
        epsilon = figure(by.epsilon(ledger.spending(), charter.limits.delta))
    added, limits = sum(done.added.values()), charter.limits
    what = (
        f"{added} releases added, of {done.heads} signed heads that it lacked"
        if added or done.heads
        else "nothing is missing"
    )
    guarantee = (
        f"for one {limits.unit} ({limits.neighbours}), delta {limits.delta:g}, by "
        f"{limits.accountant}"
    )
    print(f"{done.path.name}: {what}; epsilon {epsilon} of {limits.epsilon:g} spent, {guarantee}")
