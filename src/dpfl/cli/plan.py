"""The command `dpfl plan`: what a budget buys, and how to spend it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import tomli_w
import typer
from rich.console import Console

from dpfl.errors import DpflError
from dpfl.planner import plan as make_plan
from dpfl.privacy.statement import rounded_up
from dpfl.report import plan as report
from dpfl.tradeoff import Question, Tradeoff, tradeoff

WRITTEN = """\
# Planned by `dpfl plan`: one sampling rate and one noise, which hold for clients of every size.
# Name your own [data] and [model]; the guarantee does not depend on them, the accuracy does.
"""


def plan(
    epsilon: Annotated[float | None, typer.Option(help="The privacy budget.")] = None,
    delta: Annotated[float, typer.Option(help="Well below one over the records of a client.")] = 1e-5,
    sampling_rate: Annotated[
        float | None,
        typer.Option(help="The chance of each record to be in a batch.", show_default="0.015, or several"),
    ] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise over sensitivity.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Private steps of one client in all.")] = None,
    accountant: Annotated[str, typer.Option(help="pld, rdp, rdp-classic or gdp-clt.")] = "pld",
    rounds: Annotated[int | None, typer.Option(help="Rounds of the run: shows the trade-off and recommends a plan.")] = None,
    tau: Annotated[int | None, typer.Option(help="Local steps a round.", show_default="several")] = None,
    sizes: Annotated[str | None, typer.Option(help="Samples of each client, as 600,550,...")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients, with --size.")] = None,
    size: Annotated[int | None, typer.Option(help="Samples of each of them.")] = None,
    samples_per_round: Annotated[float | None, typer.Option(help="What a client can compute in a round.")] = None,
    parameters: Annotated[int | None, typer.Option(help="Parameters of the model, for the learning rate.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw the trade-off into this file.")] = None,
    write: Annotated[Path | None, typer.Option(help="Write the recommended experiment into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """What a budget buys: iterations for epsilon, noise for epsilon, or epsilon for iterations; with --rounds, how to spend it.

    No data is read: sizes are those that clients declare.
    """
    if rounds is None:
        only = {"tau": tau, "sizes": sizes, "clients": clients, "size": size, "samples_per_round": samples_per_round}
        _refuse("needs --rounds", **only, parameters=parameters, png=png, write=write)
        rate = 0.015 if sampling_rate is None else sampling_rate
        _answer(delta, rate, epsilon, noise_multiplier, iterations, accountant, as_json)
        return
    _refuse("is found by the plan for --rounds; leave it out", noise_multiplier=noise_multiplier, iterations=iterations)
    if epsilon is None:
        raise DpflError("A plan for --rounds needs --epsilon.")
    question = Question(epsilon, rounds, delta, _sizes(sizes, clients, size), samples_per_round, parameters, accountant)
    found = tradeoff(question, () if sampling_rate is None else (sampling_rate,), () if tau is None else (tau,))
    _show(found, as_json)
    if png:
        report.draw(found, png)
    if write:
        _write(found, write)


def _refuse(why: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise DpflError(f"--{name.replace('_', '-')} {why}.")


def _sizes(sizes: str | None, clients: int | None, size: int | None) -> tuple[int, ...]:
    if sizes and (clients or size):
        raise DpflError("Give either --sizes, or --clients and --size.")
    if (clients is None) != (size is None):
        raise DpflError("--clients and --size go together: so many clients with so many samples each.")
    if clients is not None and size is not None:
        if clients < 1:
            raise DpflError(f"A federation has at least 1 client, not {clients}.")
        return (size,) * clients
    try:
        return tuple(int(word) for word in sizes.split(",")) if sizes else ()
    except ValueError:
        raise DpflError(f"--sizes takes whole numbers with commas between them, such as 600,550,400, not {sizes!r}.") from None


def _answer(
    delta: float, rate: float, epsilon: float | None, noise: float | None, iterations: int | None, by: str, as_json: bool
) -> None:
    made = make_plan(delta, rate, epsilon, noise, iterations, by)
    if as_json:
        print(json.dumps({**made.__dict__, "target": epsilon}))
        return
    kind = "proven" if made.proven else "approximate, not proven"
    Console(highlight=False).print(
        f"{made.iterations} iterations at sampling rate {made.sampling_rate:g} with noise multiplier "
        f"{made.noise_multiplier:.6g} cost epsilon {rounded_up(made.epsilon):.4f} at delta {made.delta:g} "
        f"({kind}, {made.accountant}; unit: one sample, add/remove one)",
        soft_wrap=True,
    )


def _show(found: Tradeoff, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found.to_dict()))
        return
    console = Console(highlight=False)
    console.print(report.table(found))
    if len(found.clients) > 1:
        console.print(report.client_table(found))
    for sentence in report.sentences(found):
        console.print(sentence, soft_wrap=True)


def _write(found: Tradeoff, path: Path) -> None:
    try:
        with path.open("x") as file:
            file.write(WRITTEN + tomli_w.dumps(found.experiment()))
    except FileExistsError:
        raise DpflError(f"{path} exists already; give --write another name.") from None
    except OSError as error:
        raise DpflError(f"{path} cannot be written ({error.strerror}); give --write another place.") from None
