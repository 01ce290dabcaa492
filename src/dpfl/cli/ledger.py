"""The commands `dpfl ledger`: what a data owner has spent, and how much the owner allows."""

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
from dpfl.privacy.figures import epsilon_text, figure
from dpfl.privacy.ledger.client_ledgers import FEDERATION, METRICS, ledger_files, ledger_path
from dpfl.privacy.ledger.plans import proven_events

app = typer.Typer(help="Show, check and limit what a data owner has spent.", no_args_is_help=True)


def _ledgers(path: Path) -> list[Path]:
    if path.is_dir():
        ledgers = ledger_files(path, "**/*.sqlite")
    else:
        ledgers = [] if path.name == METRICS else [path]
    if not ledgers:
        raise DpflError(f"There is no ledger in {path}; give a ledger, or a folder that has one.")
    return ledgers


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help="A ledger, a folder of ledgers, or a run.")],
    delta: Annotated[
        float | None, typer.Option(help="Delta of the figures; by default that of the limit.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show the epsilon spent and the epsilon allowed, per ledger."""
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
        epsilon = epsilon_text(row["epsilon"])
        if row["allowed"] is not None:
            epsilon += f" of {row['allowed']:g}"
        if row["proven"] != row["epsilon"]:
            epsilon += f"\n{epsilon_text(row['proven'])} fixed in advance"
        guarantee = f"{row['unit']}, {row['neighbours']}, {row['delta']:g}, {row['accountant']}"
        releases = (
            "\n".join(f"{count} x {event}" for event, count in row["releases"].items()) or "none"
        )
        table.add_row(row["ledger"], epsilon, guarantee, releases)
    Console().print(table)


def _row(ledger: Ledger, delta: float | None) -> dict[str, Any]:
    """Writes one ledger as numbers.

    A run may fix in advance what it will release. Then what is proven covers all of that, even if
    the run stopped early and spent less.
    """
    limit, counts = ledger.limit, ledger.spending()
    at = delta if delta is not None else limit.delta if limit else 1e-5
    by = limit.accountant if limit else default_accountant(next(iter(counts), None))
    row: dict[str, Any] = {
        "ledger": ledger.path.name,
        "unit": ledger.unit,
        "neighbours": ledger.account.neighbours,
        "epsilon": figure(accountant(by).epsilon(counts, at)),
        "proven": figure(accountant(by).epsilon(proven_events(ledger), at)),
        "allowed": limit.epsilon if limit else None,
        "delta": at,
        "accountant": by,
        "releases": {describe(event): count for event, count in counts.items()},
    }
    ledger.close()
    return row


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="A ledger, a folder of ledgers, or a run.")],
) -> None:
    """Check that no row of a ledger was changed or removed."""
    for file in _ledgers(path):
        with closing(Ledger.read(file)) as ledger:
            kind = f"one {ledger.unit}, {ledger.account.neighbours}"
            count = len(ledger.debits())
            debits = "1 debit" if count == 1 else f"{count} debits"
            print(f"{file.name}: intact, {debits} of {ledger.account.owner} ({kind})")


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="A folder with the ledgers of other clients.")],
    name: Annotated[str, typer.Argument(help="The name of the client.")],
) -> None:
    """Make a ledger for a client that has spent nothing, beside the ledgers of other clients.

    It has the unit, the neighbours and the limit of the others. Do not use it for a client whose
    ledger was lost: what that ledger held is spent. If you must start over, lower the limit of the
    new ledger by what the client had spent.
    """
    checked_names([name], 1)
    with closing(Ledger.read(_ledgers(folder)[0])) as ledger:
        account, account_limit = ledger.account, ledger.limit
    if account.owner == FEDERATION:
        raise DpflError(
            f"{folder} holds the ledger of a federation; its clients have no ledgers of their own."
        )
    if (path := ledger_path(folder, name)).exists():
        raise DpflError(f"{path} exists already; choose another name.")
    Ledger.open(path, name, account.unit, account.neighbours, account_limit).close()
    print(f"{path.name}: new, for one {account.unit} ({account.neighbours})")


@app.command()
def limit(
    path: Annotated[Path, typer.Argument(help="A ledger, or a folder of ledgers.")],
    epsilon: Annotated[
        float, typer.Option(help="The most that may be spent, counted from the first release.")
    ],
    delta: Annotated[float, typer.Option(help="Delta of the limit.")] = 1e-5,
    accountant: Annotated[str, typer.Option(help="pld, rdp or rdp-classic.")] = "pld",
) -> None:
    """Set the limit of a ledger; earlier limits stay on record."""
    for file in _ledgers(path):
        ledger = Ledger.existing(file)
        ledger.set_limit(Limit(epsilon, delta, accountant))
        ledger.close()
        print(f"{file.name}: epsilon {epsilon:g} at delta {delta:g} by {accountant}")


@app.command()
def reconcile(
    policy: Annotated[
        Path, typer.Argument(help="The policy.toml of a node that is not running, or its folder.")
    ],
    signed_files: Annotated[
        list[Path] | None,
        typer.Argument(help="What the node has signed: statements, or the heads.json of a server."),
    ] = None,
) -> None:
    """Add to a ledger the releases that its node signed and the ledger lacks.

    Use it after a disk was restored from a backup, a ledger was lost, or a folder was copied.
    The signatures come from the node's folder, its witness and the files that you give. The ledger
    then counts every release that they show. It may count one twice, but it never leaves one out.
    Runs that were under way have ended for this node.
    """
    from dpfl.node.history.reconciliation import reconcile as add_missing
    from dpfl.node.load_data import load_node_data
    from dpfl.node.policy import read
    from dpfl.node.storage.folder import lock_folder
    from dpfl.protocol.keys import load_private

    node_policy = read(policy)
    key, limits = load_private(node_policy.key), node_policy.limits
    with closing(lock_folder(node_policy.folder)):
        result = add_missing(node_policy, key, load_node_data(node_policy), signed_files or ())
    with closing(Ledger.read(result.path)) as ledger:
        spending = accountant(limits.accountant).epsilon(ledger.spending(), limits.delta)
    additions = sum(result.added_events.values())
    what = "nothing is missing"
    if additions or result.heads:
        what = f"{additions} releases added from {result.heads} signed heads that were missing"
    guarantee = (
        f"for one {limits.unit} ({limits.neighbours}), delta {limits.delta:g}, by "
        f"{limits.accountant}"
    )
    epsilon = f"epsilon {epsilon_text(spending)} of {limits.epsilon:g} spent"
    print(f"{result.path.name}: {what}; {epsilon}, {guarantee}")
