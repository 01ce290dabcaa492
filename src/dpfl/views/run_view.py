"""One run in words: everything that people are shown of it, in the order in which they see it.

The report and the web page lay out a `RunView` of a run's folder; the terminal and the notebook lay
out one of a result in memory. None of them words a sentence or rounds a figure of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tomli_w

from dpfl.privacy.figures import UNBOUNDED, epsilon_text
from dpfl.privacy.statement_view import PrivacyVerdict, StatementView, verdict
from dpfl.run.outcome_view import OutcomeView, ending_in_words, metric_text
from dpfl.views.audit_view import AuditView
from dpfl.views.rerun_command import command

if TYPE_CHECKING:
    from dpfl.run.metrics import RoundRow
    from dpfl.run.result import Result
    from dpfl.views.run_tables import RunTables

RUNNING = PrivacyVerdict(
    "running",
    "Not finished",
    "The figures are those so far. The guarantee is stated when the run ends.",
)

UNFINISHED_PUBLISHED = PrivacyVerdict(
    "running",
    "Not finished",
    "This run follows its paper as published. What is proven is stated when the run ends.",
)

SEED_SHOWN = PrivacyVerdict(
    "nothing",
    "This page contains the seed",
    "Whoever knows the seed can remove the noise, and then no epsilon holds. Show this page only "
    'to people who may see the data. With privacy.entropy = "system" there is no such seed.',
)
"""A warning above pages that show the settings of a run with keyed noise."""


@dataclass(frozen=True)
class Tile:
    """One figure with its name and what must be known about it."""

    kind: str
    """How a layout colours it: "", "proven", "claimed", "audited" or "nothing"."""
    title: str
    text: str
    note: str


@dataclass(frozen=True)
class RecordView:
    """The settings of a run, as people read them."""

    lead: str
    """System, model, clients and seed in one line."""
    command: str
    """The command that repeats the run; "" if it was started from Python."""
    experiment: str
    """The experiment as asked for and as resolved, in TOML."""


@dataclass(frozen=True)
class RunView:
    """A run as people see it."""

    name: str
    verdict: PrivacyVerdict | None
    """What holds; None for a result in memory, which does not know where its noise came from."""
    seed_shown: PrivacyVerdict | None
    """The warning for a page that shows the seed of the noise; None if there is none."""
    outcome: OutcomeView
    tiles: tuple[Tile, ...]
    statement: StatementView | None
    """None until the run ends."""
    record: RecordView | None
    """None for a result in memory."""

    @classmethod
    def of(cls, run: RunTables) -> RunView:
        """Puts the folder of a run into words.

        Args:
            run: A run that has ended or is under way.

        Returns:
            The view, with the verdict and the record.
        """
        outcome = OutcomeView.of(run.result)
        statement = run.privacy
        tiles = (*progress_tiles(run), *epsilon_tiles(run))
        interim_verdict = UNFINISHED_PUBLISHED if run.facts.variant == "published" else RUNNING
        return cls(
            name=run.name,
            verdict=verdict(statement, run.keyed) if statement else interim_verdict,
            seed_shown=SEED_SHOWN if run.keyed and not run.protects_nobody else None,
            outcome=outcome,
            tiles=tiles,
            statement=statement.view if statement else None,
            record=_record(run),
        )

    @classmethod
    def of_result(cls, result: Result) -> RunView:
        """Puts a result in memory into words.

        Args:
            result: What `train` returns.

        Returns:
            The view, without verdict and record.
        """
        return cls(
            name=result.folder.name,
            verdict=None,
            seed_shown=None,
            outcome=OutcomeView.of(result.to_dict()),
            tiles=(),
            statement=result.privacy.view,
            record=None,
        )


def progress_tiles(run: RunTables) -> tuple[Tile, ...]:
    """Shows the first metric and the rounds.

    Args:
        run: A run that has ended or is under way.

    Returns:
        One tile each.
    """
    last = run.rows[-1] if run.rows else None
    return live_tiles(run.headline, run.result, last, run.budget.get("rounds"), _last_measured(run))


def live_tiles(
    headline: str,
    result: Mapping[str, Any],
    last: RoundRow | None,
    most_rounds: int | None,
    last_value: float | None,
) -> tuple[Tile, ...]:
    """Shows the first metric and the rounds of a run, also while it goes on.

    Args:
        headline: The name of the first metric.
        result: The content of `result.json`; empty while the run goes on.
        last: The last round.
        most_rounds: The rounds that the budget allows.
        last_value: The last value of the first metric.

    Returns:
        One tile each.
    """
    outcome = OutcomeView.of(result)
    value = result.get("metrics", {}).get(headline, result.get("accuracy"))
    value = last_value if value is None else value
    interval = outcome.headline_interval
    note = f"95 % interval {interval}" if interval else outcome.measured_on
    if value is None:
        note = "there is no public test set" if result else "not measured yet"
    title = headline[:1].upper() + headline[1:]
    text = "not measured" if value is None else metric_text(headline, value)
    rounds = result.get("rounds") or (last.round if last else 0)
    budget = f" of {most_rounds:,}" if most_rounds else ""
    cost = (
        f"{last.iterations:,.0f} steps per client, {last.bytes / 1e6:,.1f} MB sent, "
        f"{last.seconds:,.0f} s"
        if last
        else "no round has ended yet"
    )
    if "stopped_by" in result:
        cost = f"{ending_in_words(result['stopped_by'])}; {cost}"
    return (Tile("", title, text, note), Tile("", "Rounds", f"{rounds:,}{budget}", cost))


def epsilon_tiles(run: RunTables) -> tuple[Tile, ...]:
    """Shows the proven, the claimed and the audited epsilon, never one of them alone.

    Args:
        run: A run.

    Returns:
        Three tiles; none before the run has ended, or if the run protects nobody.
    """
    if not run.statement or run.protects_nobody:
        return ()
    values = run.epsilons
    proven_epsilon, claimed_epsilon, audited_epsilon = (
        values["proven"],
        values["claimed"],
        values["audited"],
    )
    is_bounded = isinstance(proven_epsilon, float)
    audit = AuditView.of(run.audit)
    return (
        Tile(
            "proven" if is_bounded else "nothing",
            "Epsilon proven",
            epsilon_in_words("proven", proven_epsilon),
            f"the guarantee, {run.guarantee}" if is_bounded else "no epsilon holds",
        ),
        Tile(
            "nothing" if claimed_epsilon == UNBOUNDED else "claimed",
            "Epsilon claimed",
            epsilon_in_words("claimed", claimed_epsilon),
            f"{run.statement.get('claim') or 'by the accounting of the paper'}; no guarantee",
        ),
        Tile(
            "nothing" if audited_epsilon == UNBOUNDED else "audited",
            "Epsilon measured",
            audit.measured,
            audit.note,
        ),
    )


def epsilon_in_words(kind: str, value: float | str | None) -> str:
    """Shows one of the three epsilons of a run.

    Args:
        kind: "proven", "claimed" or "audited".
        value: An upper bound, which is rounded up; or what an audit measured, a lower bound, which
            is rounded down.

    Returns:
        The figure, or a word if there is none.
    """
    if kind == "audited":
        return AuditView.of(None if value is None else {"measured": value}).measured
    return epsilon_text(value, absent="nothing")


def _last_measured(run: RunTables) -> float | None:
    return next((row.measured for row in reversed(run.rows) if row.measured is not None), None)


def _record(run: RunTables) -> RecordView:
    facts = run.facts
    content = {
        key: run.experiment[key] for key in ("experiment", "resolved") if run.experiment.get(key)
    }
    lead = (
        f"{facts.algorithm}{', as published,' if facts.variant == 'published' else ''} with "
        f"{facts.model} over {facts.clients} clients"
        f"{f' of {facts.data}' if facts.data else ''}, seed {facts.seed}"
    )
    return RecordView(lead, command(run.experiment), tomli_w.dumps(content))
