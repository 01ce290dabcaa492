"""One run as a row of facts: what lists, comparisons and `dpfl runs --json` show of it.

A `RunFacts` is read in one way for all of them. A list of the web pages reads a part of the record
only and adds what a run under way has reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpfl.privacy.statement_view import GuaranteeView
from dpfl.run.records.folder import RunFolder

ACCURACY = "accuracy"
"""The first metric of runs that name no other."""

STATEMENT_KEYS = ("unit", "delta", "accountant", "proven", "used", "claimed")
"""What a summary shows of a privacy statement."""


@dataclass(frozen=True)
class RunFacts:
    """What a run was and what it came to. What a run under way does not have yet is None."""

    algorithm: str | None
    variant: str | None
    data: str | None
    model: str | None
    clients: int | None
    seed: int | None
    budget: Mapping[str, Any]
    """Epsilon, delta, rounds, bytes and seconds."""
    started: Any
    """When it started, as its record has it."""
    result: Mapping[str, Any]
    """The content of `result.json`; empty while the run goes on."""

    @classmethod
    def of(cls, record: Mapping[str, Any], result: Mapping[str, Any]) -> RunFacts:
        """Takes the facts from the files of a run.

        Args:
            record: The content of `experiment.toml`, or its tables `run`, `experiment.data` and
                `resolved`.
            result: The content of `result.json`; empty while the run goes on.

        Returns:
            The facts.
        """
        resolved_section = record.get("resolved", {})
        algorithm, budget = (
            resolved_section.get("algorithm", {}),
            resolved_section.get("budget", {}),
        )
        return cls(
            algorithm=algorithm.get("name"),
            variant=algorithm.get("variant"),
            data=record.get("experiment", {}).get("data", {}).get("name"),
            model=resolved_section.get("model"),
            clients=resolved_section.get("clients"),
            seed=resolved_section.get("seed"),
            budget=budget if isinstance(budget, dict) else {},
            started=record.get("run", {}).get("started"),
            result=result,
        )

    @property
    def privacy(self) -> Mapping[str, Any]:
        """The privacy statement; empty until the run ends."""
        return self.result.get("privacy", {})

    @property
    def guarantee(self) -> GuaranteeView:
        """What is proven, in words."""
        return GuaranteeView.of(self.privacy, self.budget.get("delta"))

    @property
    def headline(self) -> str:
        """The name of the first metric."""
        return str(self.result.get("headline") or ACCURACY)

    @property
    def measured(self) -> float | None:
        """The first metric at the end of the run."""
        return self.result.get("metrics", {}).get(self.headline, self.result.get("accuracy"))

    def epsilon_so_far(self, running_total: float | None) -> float | str | None:
        """Bounds what the run has used so far.

        Until a run ends there is only its running total, a coarse upper bound. It may exceed the
        budget of a run that keeps its budget, so the budget is the better bound then. A published
        system keeps none.

        Args:
            running_total: The last running total; None if there is none yet.

        Returns:
            The epsilon of the statement once there is one; otherwise the smaller upper bound.
        """
        if self.result:
            final = self.privacy.get("used")
            return running_total if final is None else final
        limit = self.budget.get("epsilon")
        if running_total is None or self.variant == "published" or not limit:
            return running_total
        return min(running_total, float(limit))


def summary(folder: RunFolder) -> dict[str, Any]:
    """Reads the settings and the outcome of a run.

    Args:
        folder: The run's folder. The run may be finished or under way.

    Returns:
        One entry per column. What a run under way does not have yet is None.
    """
    record = folder.experiment()
    return columns_of(folder, record, RunFacts.of(record, folder.json("result.json") or {}))


def columns_of(folder: RunFolder, record: Mapping[str, Any], facts: RunFacts) -> dict[str, Any]:
    """Lists the facts of a run by column.

    Args:
        folder: The run's folder.
        record: The content of its `experiment.toml`.
        facts: The facts that were taken from it.

    Returns:
        One entry per column, as `dpfl runs --json` prints them.
    """
    result, privacy = facts.result, facts.privacy
    return {
        "run": str(folder.path),
        "algorithm": facts.algorithm,
        "model": facts.model,
        "clients": facts.clients,
        "seed": facts.seed,
        "settings": settings(record),
        "started": facts.started,
        **{name: result.get(name) for name in ("rounds", "iterations", "accuracy", "loss")},
        "headline": result.get("headline"),
        "figure": result.get("metrics", {}).get(result.get("headline")),
        "noisy": bool(result.get("noisy")),
        "stopped_by": result.get("stopped_by", "unfinished"),
        **{name: privacy.get(name) for name in STATEMENT_KEYS},
        "model_sha256": result.get("model_sha256"),
    }


def settings(record: Mapping[str, Any]) -> dict[str, Any]:
    """Reads everything that makes a run what it is, except its seed and the place of its ledgers.

    The algorithm is the one that was asked for: noise and rates planned for it depend on the
    clients, and those depend on the seed.

    Args:
        record: The content of `experiment.toml` in a run's folder.

    Returns:
        The settings. Runs with equal settings differ only by their seed.
    """
    resolved_section, hashes = record.get("resolved", {}), record.get("hashes", {})
    own = ("seed", "ledger", "largest", "declared")
    return {name: value for name, value in resolved_section.items() if name not in own} | {
        "algorithm": record.get("asked", resolved_section.get("algorithm")),
        "data": {name: hashes.get(name) for name in ("train", "test")},
        "module": hashes.get("model"),
    }
