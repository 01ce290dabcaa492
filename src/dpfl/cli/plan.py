"""The command `dpfl plan`: what a budget buys, and how to spend it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import tomli_w
import typer
from rich.console import Console

from dpfl import models
from dpfl.bad_values import suggest
from dpfl.data.catalog import SHAPES
from dpfl.errors import DpflError
from dpfl.planning.planner import afford
from dpfl.planning.tradeoff import Tradeoff
from dpfl.planning.tradeoff import plan as make_plan
from dpfl.privacy.statement import rounded_up
from dpfl.server.algorithm import SAMPLE_UNITS
from dpfl.views.notebook.plan_page import plot
from dpfl.views.output_path import check_place
from dpfl.views.plan_view import ClientPlansView, PlanView
from dpfl.views.terminal.plan_tables import client_table, plan_table

WRITTEN = """\
# Planned by `dpfl plan`: one sampling rate and one noise, which hold for clients of every size. Noise and learning rate are
# found when it starts, by the rules of the plan.
# Name your own [data] and [model]; the guarantee does not depend on them, the accuracy does.
"""  # noqa: E501


def plan(
    epsilon: Annotated[float | None, typer.Option(help="The privacy budget.")] = None,
    delta: Annotated[
        float, typer.Option(help="Well below one over the records of a client.")
    ] = 1e-5,
    sampling_rate: Annotated[
        float | None,
        typer.Option(
            help="The chance of each record to be in a batch.", show_default="0.015, or several"
        ),
    ] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise over sensitivity.")] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Private steps of one client in all.")
    ] = None,
    accountant: Annotated[str, typer.Option(help="pld, rdp, rdp-classic or gdp-clt.")] = "pld",
    rounds: Annotated[
        int | None,
        typer.Option(help="Rounds of the run: shows the trade-off and recommends a plan."),
    ] = None,
    tau: Annotated[
        int | None, typer.Option(help="Local steps a round.", show_default="several")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Samples of each client, as 600,550,...")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients, with --size.")] = None,
    size: Annotated[int | None, typer.Option(help="Samples of each of them.")] = None,
    samples_per_round: Annotated[
        float | None, typer.Option(help="What a client can compute in a round.")
    ] = None,
    seconds_per_round: Annotated[
        float | None, typer.Option(help="What a client can compute in a round, in seconds.")
    ] = None,
    samples_per_second: Annotated[
        float | None,
        typer.Option(help="The speed of a client.", show_default="measured here, with --model"),
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(help="Parameters of the model, for the learning rate.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The model, instead of its parameters; needs --data or --shape."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="A data set with a name, for its shape alone.")
    ] = None,
    shape: Annotated[str | None, typer.Option(help="The shape of a sample, as 1,28,28.")] = None,
    classes: Annotated[
        int | None, typer.Option(help="Number of classes, with --shape.", show_default="10")
    ] = None,
    survivors: Annotated[
        int | None,
        typer.Option(
            help="Secure aggregation: clients that must be in every sum.", show_default="all"
        ),
    ] = None,
    colluders: Annotated[
        int | None,
        typer.Option(
            help="Secure aggregation: clients that may be the server's.", show_default="0"
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Whom it is for, and what sizes count: sample or person.")
    ] = "sample",
    png: Annotated[Path | None, typer.Option(help="Draw the trade-off into this file.")] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the recommended experiment into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """What a budget buys: iterations for epsilon, noise for epsilon, or epsilon for iterations;
    with --rounds, how to spend it.

    No data is read: sizes are those that clients declare.
    """
    check_place(png, "--png", ".png")
    check_place(write, "--write")
    if unit not in SAMPLE_UNITS:
        raise DpflError(f"--unit is sample or person, not {unit!r}.")
    if rounds is None:
        only = {
            "tau": tau,
            "sizes": sizes,
            "clients": clients,
            "size": size,
            "samples_per_round": samples_per_round,
        }
        only |= {
            "seconds_per_round": seconds_per_round,
            "samples_per_second": samples_per_second,
            "parameters": parameters,
        }
        only |= {"survivors": survivors, "colluders": colluders}
        _refuse(
            "needs --rounds",
            **only,
            model=model,
            data=data,
            shape=shape,
            classes=classes,
            png=png,
            write=write,
        )
        rate = 0.015 if sampling_rate is None else sampling_rate
        _answer(delta, rate, epsilon, noise_multiplier, iterations, accountant, as_json, unit)
        return
    _refuse(
        "is found by the plan for --rounds; leave it out",
        noise_multiplier=noise_multiplier,
        iterations=iterations,
    )
    if epsilon is None:
        raise DpflError("A plan for --rounds needs --epsilon.")
    if model is None:
        _refuse("needs --model", data=data, shape=shape, classes=classes)
    found_shape, found_classes = _shape(data, shape, classes)
    found = make_plan(
        epsilon,
        rounds,
        delta=delta,
        sizes=_sizes(sizes, clients, size),
        model=models.from_name(model) if model else None,
        shape=found_shape,
        classes=found_classes,
        parameters=parameters,
        samples_per_round=samples_per_round,
        seconds_per_round=seconds_per_round,
        samples_per_second=samples_per_second,
        accountant=accountant,
        rates=() if sampling_rate is None else (sampling_rate,),
        taus=() if tau is None else (tau,),
        survivors=survivors,
        colluders=colluders,
    )
    _show(found, as_json)
    if png:
        plot(found).save(png)
    if write:
        _write(found, write, model, data, unit)


def _refuse(why: str, **given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise DpflError(f"--{name.replace('_', '-')} {why}.")


def _sizes(sizes: str | None, clients: int | None, size: int | None) -> tuple[int, ...]:
    if sizes and (clients or size):
        raise DpflError("Give either --sizes, or --clients and --size.")
    if (clients is None) != (size is None):
        raise DpflError(
            "--clients and --size go together: so many clients with so many samples each."
        )
    if clients is not None and size is not None:
        if clients < 1:
            raise DpflError(f"A federation has at least 1 client, not {clients}.")
        return (size,) * clients
    return _numbers("sizes", sizes, "600,550,400") if sizes else ()


def _shape(data: str | None, shape: str | None, classes: int | None) -> tuple[tuple[int, ...], int]:
    if data is None:
        return _numbers(
            "shape", shape, "1,28,28"
        ) if shape else (), 10 if classes is None else classes
    _refuse("goes without --data, which has its own", shape=shape, classes=classes)
    if data not in SHAPES:
        raise DpflError(
            f"The shape of {data!r} is not known without reading it; {suggest(data, SHAPES)} "
            "Or give --shape."
        )
    return SHAPES[data]


def _numbers(name: str, words: str, such: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words.split(","))
    except ValueError:
        raise DpflError(
            f"--{name} takes whole numbers with commas between them, such as {such}, not {words!r}."
        ) from None


def _answer(
    delta: float,
    rate: float,
    epsilon: float | None,
    noise: float | None,
    iterations: int | None,
    by: str,
    as_json: bool,
    unit: str,
) -> None:
    made = afford(delta, rate, epsilon, noise, iterations, by)
    if as_json:
        print(json.dumps({**made.__dict__, "target": epsilon, "unit": unit}))
        return
    kind = "proven" if made.proven else "approximate, not proven"
    Console(highlight=False).print(
        f"{made.iterations} iterations at sampling rate {made.sampling_rate:g} with noise "
        "multiplier "
        f"{made.noise_multiplier:.6g} cost epsilon {rounded_up(made.epsilon):.4f} at delta "
        f"{made.delta:g} "
        f"({kind}, {made.accountant}; unit: one {unit}, add/remove one)",
        soft_wrap=True,
    )


def _show(found: Tradeoff, as_json: bool) -> None:
    if as_json:
        print(json.dumps(found.to_dict()))
        return
    console = Console(highlight=False)
    console.print(plan_table(PlanView.of(found)))
    if len(found.clients) > 1:
        console.print(client_table(ClientPlansView.of(found)))
    for sentence in PlanView.of(found).sentences:
        console.print(sentence, soft_wrap=True)


def _write(found: Tradeoff, path: Path, model: str | None, data: str | None, unit: str) -> None:
    planned = found.experiment()
    if unit != "sample":
        planned["privacy"] |= {"unit": unit}
    named = {
        "data": ({"name": data} if data else {}) | planned.pop("data"),
        "model": {"name": model} if model else {},
    }
    try:
        with path.open("x") as file:
            file.write(WRITTEN + tomli_w.dumps(named | planned))
    except FileExistsError:
        raise DpflError(f"{path} exists already; give --write another name.") from None
    except OSError as error:
        raise DpflError(
            f"{path} cannot be written ({error.strerror}); give --write another place."
        ) from None
