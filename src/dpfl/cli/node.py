"""The commands `dpfl node`: sets up a node, checks it, runs it, and states what it has spent."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpfl.cli.shorthand import RunShorthandGroup
from dpfl.errors import DpflError

app = typer.Typer(
    cls=RunShorthandGroup,
    help="Run a node, which guards its own data and enforces its own budget.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

TEMPLATE = """\
# The policy of this node: what it does, for whom, and how much. The node sends nothing else.
# `dpfl node check` lists what leaves the node and what does not.

name = "{name}"
key = "node.pem"                 # signs the node's answers; it stays here
# witness = "/mnt/other/{name}.witness"   # a file on other storage, which a restored backup of this disk does not reset

[data]                           # the keys of [data] in an experiment: a table or an .npz file, with a path relative to this folder
name = "data.csv"
label = "outcome"
task = "binary"
# [data.columns.age]             # declare every column that is read, by bounds or by levels
# low = 0
# high = 110

[server]
address = {server}
ca = "ca.crt"                    # the server's certificate authority, from the server's folder
key = "carrier.key"              # Flower admits the node by this key
# watch = 9100                   # a port of this machine for /health and Prometheus' /metrics

[owners]                         # public keys that may sign tasks
study = {owner}

[limits]                         # epsilon at one delta, over all owners; the node refuses what would exceed it
unit = "sample"                  # whom the ledger protects: "sample", "person" (needs data.person) or "client"
neighbours = "add/remove one"    # or "replace one"
accountant = "pld"
delta = 1e-6                     # well below one over the number of samples
epsilon = 8.0                    # in total, from the first release on
epsilon_a_year = 4.0             # in the last 365 days
epsilon_a_run = 2.0              # per run

[allow]
systems = {systems}
models = {models}
variants = ["sound"]
least_noise_multiplier = 0.5
largest_clip = 10.0
largest_weight = 10_000.0        # largest absolute value in a model from the server; no honest model comes near it
largest_sampling_rate = 0.2
most_steps = 100                 # per round
most_rounds = 1000
most_bytes = 268_435_456         # of a message, and so of a model
most_memory = 4_294_967_296      # bytes for the fixed features of all samples, by the declared size
# [allow.own_models]             # models from your own code, by import path, with their options
# "clinic.models:net" = {{ hidden = 32 }}

[tell]
size = {{ rounded = 100 }}         # the number of samples that the server is told: "exact", rounded up, or {{ constant = 500 }}
trusted = false                  # send clipped updates without noise to a server that adds it
bare = false                     # send updates without any noise
secure = true                    # draw noise on a grid, from a stream cipher
every = 0.0                      # seconds; replies leave only at multiples of this, so that their timing reveals less

# [secure]                       # sums that the server cannot look into; the members share the noise
# least_survivors = 3            # no sum over fewer members is opened
# least_colluders = 1            # the guarantee holds even if so many members collude with the server
# [secure.members]               # the line of each member, from its own owner and not from the server
# {name} = "{line}"
# seattle = "..."
"""  # noqa: E501


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = Path("node"),
    name: Annotated[
        str | None, typer.Option(help="The name of the node; by default the name of the folder.")
    ] = None,
    server: Annotated[str, typer.Option(help="The address of the server.")] = "127.0.0.1:9092",
    owner: Annotated[
        str,
        typer.Option(help="The public key of the owner of runs, as `dpfl server init` prints it."),
    ] = "",
) -> None:
    """Make a folder with the keys of a node and a policy to edit.

    It prints the line that the experiment of the server needs.
    """
    from dpfl.data.names import checked_names

    name, policy = name or folder.resolve().name, folder / "policy.toml"
    checked_names([name], 1)
    if policy.exists():
        raise DpflError(f"The policy {policy} exists already; choose another folder.")
    from dpfl.algorithms import ALGORITHMS, from_name
    from dpfl.models.catalog import NAMES
    from dpfl.protocol.keys import load_public, new_key, public_file
    from dpfl.transports.flower.tls_keys import node_key

    systems = [system for system in ALGORITHMS if from_name(system).ledger_per_client]
    words = {
        "name": name,
        "server": json.dumps(server),
        "owner": json.dumps(owner),
        "systems": json.dumps(systems),
        "models": json.dumps(list(NAMES)),
    }
    folder.mkdir(parents=True, exist_ok=True)
    new_key(folder / "node.pem")
    line = f"{load_public(public_file(folder / 'node.pem'))} {node_key(folder / 'carrier.key')}"
    policy.write_text(TEMPLATE.format(**words, line=line))
    print(f"Edit {policy}, then run: dpfl node check {policy}")
    print(
        "The experiment of the server needs this line in [server.nodes]. Nodes that sum securely "
        "with this one need it in [secure.members]:"
    )
    print(f'{name} = "{line}"')


@app.command()
def run(
    policy: Annotated[Path, typer.Argument(help="The policy.toml of the node, or its folder.")],
) -> None:
    """Answer messages until Ctrl-C or SIGTERM; the current message is answered first."""
    from dpfl.transports.flower import daemon

    daemon.run(policy)


@app.command()
def check(
    policy: Annotated[Path, typer.Argument(help="The policy.toml of the node, or its folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check the policy, data, keys, ledger, clock, disk and server of a node.

    It also lists what will leave the node, and what will not.
    """
    from dpfl.node.checks.readiness import findings
    from dpfl.node.disclosures import describe_disclosures, describe_protection
    from dpfl.node.policy import read

    node_policy = read(policy)
    parts = findings(node_policy)
    leaves, stays = [*describe_disclosures(node_policy)], [*describe_protection(node_policy)]
    if as_json:
        report = {"parts": [vars(part) for part in parts], "leaves": leaves, "stays": stays}
        print(json.dumps({"node": node_policy.name} | report))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for part in parts:
            console.print(
                f"{'ok' if part.good else 'NO':3} {part.part:8} {part.words}", markup=False
            )
        for heading, lines in (("What leaves this node:", leaves), ("What stays here:", stays)):
            console.print(
                f"\n{heading}", *(f"  - {line}" for line in lines), sep="\n", markup=False
            )
    if not all(part.good for part in parts):
        raise typer.Exit(2)


@app.command()
def statement(
    policy: Annotated[Path, typer.Argument(help="The policy.toml of the node, or its folder.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("statement.json"),
    run: Annotated[str, typer.Option(help="The id of a run to list separately.")] = "",
) -> None:
    """Write what the node has spent, from its own ledger, signed with its own key."""
    from dpfl.node.history.rollback import refuse_missing
    from dpfl.node.history.signed_heads import own_heads
    from dpfl.node.policy import read
    from dpfl.node.statement import statement as sign_statement
    from dpfl.privacy import Ledger
    from dpfl.privacy.ledger.client_ledgers import ledger_path
    from dpfl.protocol.keys import load_private, public_key_hex

    node_policy = read(policy)
    key = load_private(node_policy.key)
    with closing(Ledger.read(ledger_path(node_policy.ledgers, node_policy.name))) as ledger:
        refuse_missing(
            node_policy, ledger, own_heads(node_policy, public_key_hex(key.public_key()))
        )
        envelope = sign_statement(ledger, node_policy.limit, run, key)
    out.write_text(json.dumps(envelope, indent=2))
    terms = envelope["statement"]
    guarantee = (
        f"for one {terms['unit']} ({terms['neighbours']}), delta {terms['delta']:g}, by "
        f"{terms['accountant']}"
    )
    print(
        f"{out}: epsilon {terms['proven']} proven of {terms['limit']:g} allowed, {guarantee}, "
        f"against {terms['adversary']}"
    )
