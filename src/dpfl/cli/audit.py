"""The command `dpfl audit`: plays games that try to refute the claimed and the proven epsilon."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dpfl import models
from dpfl.algorithms import ALGORITHMS, Algorithm, from_name, options_of
from dpfl.audit import AuditFinding, AuditReport, AuditSettings
from dpfl.audit import audit as play
from dpfl.audit.attacks.attacks import load_module, membership_of
from dpfl.audit.audit import ready, with_finding
from dpfl.audit.report import BROKEN, ESTIMATE, TOO_LITTLE, UNTESTABLE
from dpfl.bad_values import suggest
from dpfl.certificate.finished_run import recorded_algorithm
from dpfl.config.experiment import Experiment, load, parse
from dpfl.data.catalog import is_table
from dpfl.errors import DpflError
from dpfl.import_path import is_path
from dpfl.planning.planner import with_planned_noise
from dpfl.privacy import Budget
from dpfl.run.records.folder import RunFolder
from dpfl.run.stages.algorithm_stages import (
    algorithm_for_run,
    wants_secure_noise,
    with_noise_kind,
    with_unit,
    with_unit_and_queries,
)
from dpfl.views.audit_view import AuditReportView, AuditRow
from dpfl.views.figures.inversion_figure import draw_into
from dpfl.views.output_path import check_folder

PRIVATE_FILE = "audit-private.json"
PRIVATE = (
    "Rates on training samples release private data that no ledger has paid for. Keep this file "
    "where those samples are."
)
STYLES = {
    "refuted": "bold red",
    "broken": "bold white on red",
    "consistent": "green",
    "estimate": "cyan",
    "not testable": "dim",
    "does not apply": "dim",
    "not enough was tested": "bold yellow",
}


@dataclass(frozen=True)
class AuditTarget:
    """A system to audit, with the experiment or the run that it comes from.

    Attributes:
        algorithm: The system. From an experiment or a run it has that run's noise.
        delta: Delta of all figures.
        experiment: The experiment that the system comes from.
        folder: The run, whose model can be attacked as well.
    """

    algorithm: Algorithm
    delta: float = 1e-5
    experiment: Experiment | None = None
    folder: RunFolder | None = None


def audit(
    target: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM|EXPERIMENT|RUN",
            help="A system, an experiment file, or the folder of a run.",
        ),
    ],
    variant: Annotated[
        str | None, typer.Option(help="sound or published, for a system that has both.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="The confidence with which all lower bounds hold together.")
    ] = 0.95,
    delta: Annotated[
        float | None,
        typer.Option(help="Delta of all figures; by default 1e-5, or delta of the experiment."),
    ] = None,
    trials: Annotated[
        int, typer.Option(help="Releases per game, with the canary and as many without it.")
    ] = 20_000,
    game: Annotated[
        list[str] | None, typer.Option(help="Play only this game. May be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the games.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Draw the results into this folder.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder of the data sets; by default DPFL_DATA.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    private: Annotated[
        bool,
        typer.Option(
            "--private",
            help="Also show results on the training samples of a run; they are private.",
        ),
    ] = False,
) -> None:
    """Attack a system and compare the measured epsilon with the claimed and the proven one.

    Each game tries to distinguish two neighbouring data sets. Its verdict is refuted, consistent or
    not testable. The exit code is 1 if a game measures more than is proven, or if too few games can
    be played ("not enough was tested"). The audit of a run is kept in the folder of the run, for
    its certificate. Results on training samples go to audit-private.json, which is as private as
    those samples.
    """
    check_folder(out, "--out")
    subject = _target(target, variant)
    progress = Console(stderr=True, quiet=quiet)
    with progress.status("starting") as status:

        def tell(name: str) -> None:
            status.update(f"game: {name}")
            if not progress.is_terminal:
                progress.print(f"game: {name}", highlight=False)

        report = play(
            subject.algorithm,
            AuditSettings(
                delta=subject.delta if delta is None else delta,
                confidence=confidence,
                trials=trials,
                seed=seed,
            ),
            games=game,
            draw=draw_into(out) if out else None,
            tell=tell,
        )
        if subject.folder and subject.experiment:
            subject.folder.write_json("audit.json", report.to_dict())
            tell("membership, on the run's own model")
            own = _own_membership(subject.folder, subject.experiment, report.delta, data_dir)
            subject.folder.write_private_json(PRIVATE_FILE, {"private": PRIVATE} | own.to_dict())
            report = with_finding(report, own) if private else report
    if as_json:
        print(json.dumps(report.to_dict()))
    else:
        show(report, Console())
        if subject.folder and not private:
            file = subject.folder.file(PRIVATE_FILE)
            Console().print(
                f"Results on the training samples are private: {file} (--private shows them).",
                highlight=False,
                soft_wrap=True,
            )
    if report.verdict in (BROKEN, TOO_LITTLE):
        raise typer.Exit(1)


def _target(word: str, variant: str | None) -> AuditTarget:
    path = Path(word)
    if path.is_dir() and word not in ALGORITHMS:
        return _run(RunFolder.open(path), variant)
    if word in ALGORITHMS or is_path(word):
        return AuditTarget(_algorithm(word, {}, variant))
    if path.suffix != ".toml":
        raise DpflError(
            f"There is no system, experiment file or run {word!r}. Of the systems, "
            f"{suggest(word, ALGORITHMS)}"
        )
    return _experiment(load(path), variant)


def _algorithm(name: str, options: dict[str, Any], variant: str | None) -> Algorithm:
    if variant and "variant" not in options_of(name):
        raise DpflError(f"{name} has no variants; remove --variant.")
    return from_name(name, **options | ({"variant": variant} if variant else {}))


def _experiment(experiment: Experiment, variant: str | None) -> AuditTarget:
    """Builds the system of an experiment by the stages of `resolve` that need neither model nor
    sizes.
    """
    system = _algorithm(experiment.algorithm.name, experiment.algorithm.options(), variant)
    budget, privacy, clients = experiment.budget, experiment.privacy.options(), experiment.clients()
    requested_algorithm = _with_queries(system, experiment)
    aggregation = experiment.privacy.aggregation_options()
    run_algorithm = algorithm_for_run(
        requested_algorithm, None, budget.rounds, clients, aggregation
    )
    if budget.epsilon and budget.rounds:
        whole = Budget(**budget.model_dump())
        run_algorithm = with_planned_noise(run_algorithm, whole, clients, privacy.accountant)
    if wants_secure_noise(run_algorithm, privacy):  # which only noise of a known size has
        run_algorithm = ready(run_algorithm, budget.rounds or 4)
    return AuditTarget(with_noise_kind(run_algorithm, privacy), budget.delta, experiment)


def _with_queries(system: Algorithm, experiment: Experiment) -> Algorithm:
    """Builds the algorithm with the queries that its clients answer once: column scales, a metric.

    Only these need the data.
    """
    privacy, metric = experiment.privacy.options(), experiment.metrics.part()
    if metric is None and not is_table(experiment.data.name):
        return with_unit(system, privacy.unit)
    budget, federation = Budget(**experiment.budget.model_dump()), experiment.federation()
    return with_unit_and_queries(system, federation, budget, privacy, metric, over_nodes=False)


def _run(folder: RunFolder, variant: str | None) -> AuditTarget:
    """Returns the algorithm that the run recorded, or another variant of its experiment."""
    record = folder.experiment()
    if not record.get("experiment"):
        raise DpflError(
            f"The run in {folder.path} was started from Python. Audit it there, with "
            "dpfl.audit.audit(algorithm)."
        )
    if folder.json("statement.json") is None:
        raise DpflError(
            f"The run in {folder.path} is not finished. Resume it with: dpfl run --resume "
            f"{folder.path}"
        )
    experiment = parse(record["experiment"])
    algorithm = recorded_algorithm(record)
    if variant and variant != algorithm.variant:
        return replace(_experiment(experiment, variant), folder=folder)
    return AuditTarget(algorithm, experiment.budget.delta, experiment, folder)


def _own_membership(
    folder: RunFolder, experiment: Experiment, delta: float, data_dir: Path | None
) -> AuditFinding:
    """Attacks the final model: which samples were trained on, compared with the proven epsilon."""
    statement = folder.json("statement.json")
    federation = experiment.federation(data_dir)
    model = models.from_name(experiment.model.name, **experiment.model.options())
    module = load_module(model, federation, folder.file("model.safetensors"))
    proven = statement["proven"] if isinstance(statement["proven"], float) else float("inf")
    game, roc = "membership of the run", membership_of(module, federation, proven, delta)
    if roc is None:
        reason = "the data has no samples outside of training"
        return AuditFinding(game, "", None, None, None, None, UNTESTABLE, reason)
    return AuditFinding(game, "the run", None, proven, None, None, ESTIMATE, roc.text)


def show(report: AuditReport, console: Console) -> None:
    """Prints a report: a table of the games, what each found, and the verdict.

    Args:
        report: The outcome of the audit.
        console: Where to print it.
    """

    def tell(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    view = AuditReportView.of(report)
    tell(f"[bold]{view.system}[/bold] {view.lead}")
    if view.rows:
        console.print(_table(view.rows))
    for row in view.rows:
        tell(f"[bold]{row.game}[/bold]: {escape(row.detail)}")
    for row in view.gaps:
        tell(f"[dim]{row.game}: {row.verdict}, {escape(row.detail)}[/dim]")
    style = STYLES[view.verdict]
    tell(f"\n[{style}]{view.verdict}[/{style}]: {escape(view.reason)}")
    if view.coverage:
        tell(escape(view.coverage))


def _table(rows: Sequence[AuditRow]) -> Table:
    table = Table("game", "of", "claimed", "proven", "measured", "verdict", box=box.SIMPLE_HEAD)
    for row in rows:
        style = STYLES[row.verdict]
        verdict = f"[{style}]{row.verdict}[/{style}]"
        table.add_row(row.game, row.scope, row.claimed, row.proven, row.measured, verdict)
    return table
