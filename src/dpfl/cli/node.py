"""`dpfl node`: a folder for a node, whether it is in order, the node at work, and what it spent."""

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
    help="A node that guards its own data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

TEMPLATE = """\
# What this node does, for whom, and how much of it. Nothing else leaves it: `dpfl node check` says what that comes to.

name = "{name}"
key = "node.pem"                 # signs its answers; stays here
# witness = "/mnt/other/{name}.witness"   # a file on other storage: whoever sets back this disk does not set it back

[data]                           # as [data] of an experiment: a table, an .npz file, by a path of this folder
name = "data.csv"
label = "outcome"
task = "binary"
# [data.columns.age]             # every column that is read is declared, by bounds or levels
# low = 0
# high = 110

[server]
address = {server}
ca = "ca.crt"                    # the server's own authority, from its folder
key = "carrier.key"              # Flower lets the node in by it
# watch = 9100                   # a port of this machine with /health and Prometheus' /metrics

[owners]                         # who may ask: the public keys of those whose orders count
study = {owner}

[limits]                         # epsilon at one delta, whoever asks; what is over is refused
unit = "sample"                  # whom the ledger protects: a "sample", a "person" (data.person), the "client"
neighbours = "add/remove one"    # or "replace one"
accountant = "pld"
delta = 1e-6                     # well below one over the number of samples
epsilon = 8.0                    # in all, from the first release on
epsilon_a_year = 4.0
epsilon_a_run = 2.0

[allow]
systems = {systems}
models = {models}
variants = ["sound"]
least_noise_multiplier = 0.5
largest_clip = 10.0
largest_weight = 10_000.0        # of any number of a model that is sent; no honest model comes near it
largest_sampling_rate = 0.2
most_steps = 100                 # a round
most_rounds = 1000
most_bytes = 268_435_456         # a letter, and so a model
most_memory = 4_294_967_296      # bytes that fixed features of all samples may take, by the size that is declared
# [allow.own_models]             # models of your own code, by import path, with their options
# "clinic.models:net" = {{ hidden = 32 }}

[tell]
size = {{ rounded = 100 }}         # how many samples: "exact", rounded up, or {{ constant = 500 }}
trusted = false                  # clipped updates without noise, to a server that adds it
bare = false                     # updates without any noise
secure = true                    # noise on a grid, from a stream cipher
every = 0.0                      # seconds: replies leave at whole multiples of it, so that time tells less

# [secure]                       # sums that the server cannot look into: the noise is shared with these members
# least_survivors = 3            # no sum over fewer of them is opened
# least_colluders = 1            # as many may help the server, and the noise of the others is enough
# [secure.members]               # the line of each, as its own owner gave it to you, not as the server did
# {name} = "{line}"
# seattle = "..."
"""  # noqa: E501


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A new folder.")] = Path("node"),
    name: Annotated[str | None, typer.Option(help="The node's; by default the folder's.")] = None,
    server: Annotated[str, typer.Option(help="Where the server is.")] = "127.0.0.1:9092",
    owner: Annotated[
        str, typer.Option(help="The public key of who may ask, as `dpfl server init` prints it.")
    ] = "",
) -> None:
    """A folder with a policy to be edited and the node's keys; prints the line that the server's
    experiment needs.
    """
    from dpfl.data.names import checked_names

    name, policy = name or folder.resolve().name, folder / "policy.toml"
    checked_names([name], 1)
    if policy.exists():
        raise DpflError(f"There is a policy {policy} already; choose another folder.")
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
    print(f"Edit {policy}, then: dpfl node check {policy}")
    print(
        "The server's experiment needs this line in [server.nodes], and whoever sums with this "
        "node in [secure.members]:"
    )
    print(f'{name} = "{line}"')


@app.command()
def run(
    policy: Annotated[Path, typer.Argument(help="The node's policy.toml, or its folder.")],
) -> None:
    """Answer letters, until it is told to stop (Ctrl-C, SIGTERM): the one at hand is answered
    first.
    """
    from dpfl.transports.flower import daemon

    daemon.run(policy)


@app.command()
def check(
    policy: Annotated[Path, typer.Argument(help="The node's policy.toml, or its folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Whether policy, data, keys, ledger, clock, disk and server are in order; what will leave, and
    what will not.
    """
    from dpfl.node.disclosures import describe_disclosures, describe_protection
    from dpfl.node.policy import read
    from dpfl.node.readiness import findings

    charter = read(policy)
    found = findings(charter)
    if as_json:
        parts = [vars(one) for one in found]
        print(
            json.dumps(
                {
                    "node": charter.name,
                    "parts": parts,
                    "leaves": [*describe_disclosures(charter)],
                    "stays": [*describe_protection(charter)],
                }
            )
        )
    else:
        console = Console(highlight=False, soft_wrap=True)
        for one in found:
            console.print(f"{'ok' if one.good else 'NO':3} {one.part:8} {one.words}", markup=False)
        for heading, lines in (
            ("What leaves this node:", describe_disclosures(charter)),
            ("What does not:", describe_protection(charter)),
        ):
            console.print(
                f"\n{heading}", *(f"  - {line}" for line in lines), sep="\n", markup=False
            )
    if not all(one.good for one in found):
        raise typer.Exit(2)


@app.command()
def statement(
    policy: Annotated[Path, typer.Argument(help="The node's policy.toml, or its folder.")],
    out: Annotated[Path, typer.Option(help="Where to write it.")] = Path("statement.json"),
    run: Annotated[str, typer.Option(help="A run to be named apart, by its id.")] = "",
) -> None:
    """What the node spent, from its own ledger, signed with its own key."""
    from dpfl.node.policy import read
    from dpfl.node.rollback import refuse_missing
    from dpfl.node.signed_heads import own_heads
    from dpfl.node.statement import statement as said
    from dpfl.privacy import Ledger
    from dpfl.privacy.ledger.client_ledgers import ledger_path
    from dpfl.protocol.keys import load_private, raw

    charter = read(policy)
    key = load_private(charter.key)
    with closing(Ledger.read(ledger_path(charter.ledgers, charter.name))) as ledger:
        refuse_missing(charter, ledger, own_heads(charter, raw(key.public_key())))
        signed = said(ledger, charter.limit, run, key)
    out.write_text(json.dumps(signed, indent=2))
    words = signed["statement"]
    guarantee = (
        f"for one {words['unit']} ({words['neighbours']}), delta {words['delta']:g}, by "
        f"{words['accountant']}"
    )
    print(
        f"{out}: epsilon {words['proven']} proven of {words['limit']:g} allowed, {guarantee}, "
        f"against {words['adversary']}"
    )
