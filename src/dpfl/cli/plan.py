"""The command `dpfl plan`: finds what a budget buys, and recommends how to spend it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import tomli_w
import typer
from rich.console import Console

from dpfl import models
from dpfl.bad_values import require_choice, suggest
from dpfl.data.published_images import SHAPES
from dpfl.errors import DpflError
from dpfl.planning.plan import ClientWorkload, PlanSearch, noise_shares
from dpfl.planning.plan import plan as make_plan
from dpfl.planning.planner import BudgetPlan, afford
from dpfl.planning.tradeoff import Tradeoff
from dpfl.privacy.statement import rounded_up
from dpfl.privacy.units import SAMPLE_UNITS
from dpfl.views.notebook.plan_page import plot
from dpfl.views.output_path import check_place
from dpfl.views.plan_view import ClientPlansView, PlanView
from dpfl.views.terminal.plan_tables import client_table, plan_table

HEADER = """\
# Planned by `dpfl plan`: one sampling rate and one noise multiplier for clients of every size.
# The run computes the noise and the learning rate when it starts, by the same rules as the plan.
# Give your own [data] and [model]. The accuracy depends on them; the guarantee does not.
"""


def plan(
    epsilon: Annotated[float | None, typer.Option(help="The epsilon of the budget.")] = None,
    delta: Annotated[
        float, typer.Option(help="Delta of the guarantee: well below 1 / (records per client).")
    ] = 1e-5,
    sampling_rate: Annotated[
        float | None,
        typer.Option(
            help="The probability with which each record is in a batch.",
            show_default="0.015, or several",
        ),
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="The noise multiplier: standard deviation of the noise over sensitivity."
        ),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(help="Private steps of one client over the whole run.")
    ] = None,
    accountant: Annotated[str, typer.Option(help="pld, rdp, rdp-classic or gdp-clt.")] = "pld",
    rounds: Annotated[
        int | None,
        typer.Option(help="Rounds of the run. With it, the command recommends a plan."),
    ] = None,
    tau: Annotated[
        int | None, typer.Option(help="Local steps per round.", show_default="several")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Samples of each client, such as 600,550,400.")
    ] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients, with --size.")] = None,
    size: Annotated[int | None, typer.Option(help="Samples per client, with --clients.")] = None,
    samples_per_round: Annotated[
        float | None, typer.Option(help="Samples that a client can process in a round.")
    ] = None,
    seconds_per_round: Annotated[
        float | None, typer.Option(help="Seconds that a client can compute in a round.")
    ] = None,
    samples_per_second: Annotated[
        float | None,
        typer.Option(
            help="Samples that a client processes per second.",
            show_default="measured here, with --model",
        ),
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(help="Number of parameters of the model, for the learning rate.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The model, in place of --parameters; needs --data or --shape."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="A data set of the catalogue, only for its shape.")
    ] = None,
    shape: Annotated[
        str | None, typer.Option(help="The shape of a sample, such as 1,28,28.")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="Number of classes, with --shape.", show_default="10")
    ] = None,
    survivors: Annotated[
        int | None,
        typer.Option(
            help="Secure aggregation: clients that every sum must include.", show_default="all"
        ),
    ] = None,
    colluders: Annotated[
        int | None,
        typer.Option(
            help="Secure aggregation: clients that may collude with the server.", show_default="0"
        ),
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Whom the guarantee protects: sample or person. Sizes count these.")
    ] = "sample",
    png: Annotated[
        Path | None, typer.Option(help="Draw the trade-off into this file (PNG).")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(help="Write the recommended experiment into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Plan a budget: find the iterations, the noise or the epsilon from the other two.

    With --rounds it shows how noise depends on the sampling rate and the local steps, and
    recommends both. It reads no data. Sizes are those that clients declare.
    """
    check_place(png, "--png", ".png")
    check_place(write, "--write")
    require_choice(unit, "--unit", SAMPLE_UNITS)
    sizing = {"sizes": sizes, "clients": clients, "size": size}
    speed = {
        "samples_per_round": samples_per_round,
        "seconds_per_round": seconds_per_round,
        "samples_per_second": samples_per_second,
    }
    network = {"data": data, "shape": shape, "classes": classes}
    sums = {"survivors": survivors, "colluders": colluders}
    if rounds is None:
        only = {"tau": tau, **sizing, **speed, **sums, "parameters": parameters, "model": model}
        _refuse("needs --rounds", **only, **network, png=png, write=write)
        rate = 0.015 if sampling_rate is None else sampling_rate
        amounts = afford(delta, rate, epsilon, noise_multiplier, iterations, accountant)
        _print_amounts(amounts, epsilon, unit, as_json)
        return
    planned_options = {"noise_multiplier": noise_multiplier, "iterations": iterations}
    _refuse("follows from the plan for --rounds; remove it", **planned_options)
    if epsilon is None:
        raise DpflError("A plan for --rounds needs --epsilon.")
    if model is None:
        _refuse("needs --model", **network)
    sample_shape, class_count = _shape(data, shape, classes)
    declared_sizes = _sizes(sizes, clients, size)
    tradeoff = make_plan(
        epsilon,
        rounds,
        delta=delta,
        sizes=declared_sizes,
        workload=ClientWorkload(
            model=models.from_name(model) if model else None,
            shape=sample_shape,
            classes=class_count,
            parameters=parameters,
            samples_per_round=samples_per_round,
            seconds_per_round=seconds_per_round,
            samples_per_second=samples_per_second,
        ),
        accountant=accountant,
        search=PlanSearch(
            rates=() if sampling_rate is None else (sampling_rate,),
            taus=() if tau is None else (tau,),
        ),
        secure_sums=noise_shares(len(declared_sizes), survivors, colluders),
    )
    _print_plan(tradeoff, unit, as_json)
    if png:
        plot(tradeoff).save(png)
    if write:
        _write(tradeoff, write, model, data, unit)


def _refuse(why: str, **options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise DpflError(f"--{name.replace('_', '-')} {why}.")


def _sizes(sizes: str | None, clients: int | None, size: int | None) -> tuple[int, ...]:
    if sizes and (clients or size):
        raise DpflError("Give either --sizes, or --clients and --size.")
    if (clients is None) != (size is None):
        raise DpflError(
            "--clients and --size go together: the number of clients, and the samples of each."
        )
    if clients is not None and size is not None:
        if clients < 1:
            raise DpflError(f"A federation has at least 1 client, not {clients}.")
        return (size,) * clients
    return _numbers("sizes", sizes, "600,550,400") if sizes else ()


def _shape(data: str | None, shape: str | None, classes: int | None) -> tuple[tuple[int, ...], int]:
    if data is None:
        sample_shape = _numbers("shape", shape, "1,28,28") if shape else ()
        return sample_shape, 10 if classes is None else classes
    _refuse("cannot be combined with --data, which has its own", shape=shape, classes=classes)
    if data not in SHAPES:
        raise DpflError(
            f"The shape of {data!r} is not known without reading it; {suggest(data, SHAPES)} "
            "Or give --shape."
        )
    return SHAPES[data]


def _numbers(name: str, words: str, example: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in words.split(","))
    except ValueError:
        raise DpflError(
            f"--{name} takes whole numbers with commas between them, such as {example}, not "
            f"{words!r}."
        ) from None


def _print_amounts(amounts: BudgetPlan, target: float | None, unit: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**amounts.__dict__, "target": target, "unit": unit}))
        return
    kind = "proven" if amounts.proven else "approximate, not proven"
    Console(highlight=False).print(
        f"{amounts.iterations} iterations at sampling rate {amounts.sampling_rate:g} with noise "
        f"multiplier {amounts.noise_multiplier:.6g} cost epsilon "
        f"{rounded_up(amounts.epsilon):.4f} at delta {amounts.delta:g} "
        f"({kind}, {amounts.accountant}; unit: one {unit}, add/remove one)",
        soft_wrap=True,
    )


def _print_plan(tradeoff: Tradeoff, unit: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps(tradeoff.to_dict()))
        return
    console = Console(highlight=False)
    view = PlanView.of(tradeoff, unit)
    console.print(plan_table(view))
    if len(tradeoff.clients) > 1:
        console.print(client_table(ClientPlansView.of(tradeoff)))
    for sentence in view.sentences:
        console.print(sentence, soft_wrap=True)


def _write(tradeoff: Tradeoff, path: Path, model: str | None, data: str | None, unit: str) -> None:
    content = tradeoff.experiment()
    if unit != "sample":
        content["privacy"] |= {"unit": unit}
    sections = {
        "data": ({"name": data} if data else {}) | content.pop("data"),
        "model": {"name": model} if model else {},
    }
    try:
        with path.open("x") as file:
            file.write(HEADER + tomli_w.dumps(sections | content))
    except FileExistsError:
        raise DpflError(f"{path} exists already; give another file with --write.") from None
    except OSError as error:
        raise DpflError(
            f"{path} cannot be written ({error.strerror}); give another path with --write."
        ) from None
