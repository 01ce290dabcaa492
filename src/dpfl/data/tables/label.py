"""The label of a table: which column it is, and what its values mean for the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpfl.bad_values import is_number, require_choice, require_name
from dpfl.errors import DpflError
from dpfl.tasks import Task, from_name

Level = str | float

TASKS = ("binary", "classes", "labels", "ordinal", "number", "counts")
CODED_TASKS = ("binary", "classes", "ordinal")
"""Tasks whose label is one of some levels."""


@dataclass(frozen=True)
class LabelColumn:
    """The column that is learned, or several columns of 0 and 1 for the task "labels".

    Attributes:
        columns: The names of the columns.
        task: The name of the task.
        levels: The classes in their order, texts or numbers; 0 and 1 for a binary task.
        above: Makes a number binary: whether it is above this.
        low: Numbers below are clamped to this.
        high: Numbers above are clamped to this.
        missing: A missing label is refused ("refuse"), or drops its row ("drop").
        mean: The unit in which counts are trained.
    """

    columns: tuple[str, ...]
    task: str
    levels: tuple[Level, ...] = ()
    above: float | None = None
    low: float | None = None
    high: float | None = None
    missing: str = "refuse"
    mean: float | None = None

    def __post_init__(self) -> None:
        require_name("table task", self.task, TASKS)
        if not self.columns or (len(self.columns) > 1) != (self.task == "labels"):
            raise DpflError(
                f"The task {self.task} cannot have {len(self.columns)} label columns: several are "
                "for 'labels'."
            )
        require_choice(self.missing, "data.label.missing", ("refuse", "drop"))
        self._check_levels()
        self._check_numbers()

    def _check_levels(self) -> None:
        if self.task not in CODED_TASKS and self.levels:
            raise DpflError(
                f"data.label has levels, but the task is {self.task}: remove them, or set task = "
                "'classes'."
            )
        if self.task in CODED_TASKS and self.above is None:
            if not self.levels:
                raise DpflError(
                    f"The task {self.task} needs data.label.levels: list the values of "
                    f"{self.columns[0]!r} in the order of "
                    "the classes."
                )
            check_levels("data.label", self.levels)
            if len(self.levels) < 2 or (self.task == "binary" and len(self.levels) > 2):
                raise DpflError(
                    f"data.label has {len(self.levels)} levels: give 2 for binary, at least 2 for "
                    "other tasks."
                )

    def _check_numbers(self) -> None:
        if self.above is not None and (
            self.task != "binary" or self.levels or not is_number(self.above)
        ):
            raise DpflError(
                "data.label.above is a number that makes a binary label, without levels: give one "
                "or the other."
            )
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        if bounds and (
            self.task not in ("number", "counts")
            or not all(map(is_number, bounds))
            or bounds != sorted(bounds)
        ):
            raise DpflError(
                "data.label.low and high are two numbers, for numbers and counts: correct or "
                "remove them."
            )
        if self.mean is not None and (
            self.task != "counts" or not is_number(self.mean) or self.mean <= 0
        ):
            raise DpflError(
                "data.label.mean is a number above 0, for counts: correct or remove it."
            )

    @property
    def classes(self) -> int | None:
        """The number of classes; None where the label is a number."""
        return (
            (2 if self.above is not None else len(self.levels))
            if self.task in CODED_TASKS
            else None
        )

    def as_task(self, class_weights: tuple[float, ...] = ()) -> Task:
        """Makes the task that is trained.

        A number with bounds is trained in units of half their distance, around their middle. Counts
        are trained in units of their mean.

        Args:
            class_weights: The weights of the classes in the loss.

        Returns:
            The task.
        """
        options: dict[str, Any] = {"weights": class_weights} if class_weights else {}
        if self.task == "labels":
            options["count"] = len(self.columns)
        elif self.task in ("classes", "ordinal"):
            options["classes" if self.task == "classes" else "levels"] = len(self.levels)
        elif (
            self.task == "number"
            and self.low is not None
            and self.high is not None
            and self.low < self.high
        ):
            options |= {"centre": (self.low + self.high) / 2, "scale": (self.high - self.low) / 2}
        elif self.task == "counts" and self.mean is not None:
            options["mean"] = float(self.mean)
        return from_name(self.task, **options)


def check_levels(where: str, levels: tuple[Any, ...]) -> None:
    """Refuses levels that are not different values of one type.

    Args:
        where: What declares them, for the error.
        levels: The levels.

    Raises:
        DpflError: There are none, two are equal, or texts and numbers are mixed.
    """
    if not levels:
        raise DpflError(f"{where}.levels is empty: list the values that the column may have.")
    if not (
        all(isinstance(level, str) for level in levels) or all(is_number(level) for level in levels)
    ):
        raise DpflError(f"{where}.levels holds {list(levels)!r}: give texts only, or numbers only.")
    if len(set(levels)) < len(levels):
        raise DpflError(f"{where}.levels names a value twice: list each once.")
