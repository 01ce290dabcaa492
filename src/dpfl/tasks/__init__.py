"""Tasks: what is to be predicted, the loss of a sample, and what is measured."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dpfl.errors import DpflError
from dpfl.tasks.classes import Binary, MultiClass, MultiLabel, Ordinal
from dpfl.tasks.intervals import intervals
from dpfl.tasks.numbers import Counts, Regression
from dpfl.tasks.task import Task
from dpfl.tasks.tokens import NextToken

TASKS: dict[str, type[Any]] = {
    "classes": MultiClass,
    "binary": Binary,
    "labels": MultiLabel,
    "ordinal": Ordinal,
    "number": Regression,
    "counts": Counts,
    "tokens": NextToken,
}


def from_name(name: str, **options: Any) -> Task:
    """A task by its name in an experiment.

    Args:
        name: The name.
        options: The task's options, such as its number of classes.

    Returns:
        The task.

    Raises:
        DpflError: There is no such task, or an option is unknown or wrong.
    """
    if name not in TASKS:
        raise DpflError(f"There is no task {name!r}; choose one of {', '.join(TASKS)}.")
    kind = TASKS[name]
    names = [field.name for field in fields(kind)]
    if unknown := next((option for option in options if option not in names), None):
        raise DpflError(
            f"The task {name!r} has no option {unknown!r}; it has {', '.join(names) or 'none'}."
        )
    try:
        task: Task = TypeAdapter(kind).validate_python(options)
        return task
    except ValidationError as error:
        first = error.errors()[0]
        raise DpflError(
            f"The task {name!r}: {first['loc'][0]}: {first['msg'].lower()} (it is "
            f"{first['input']!r})."
        ) from None


__all__ = [
    "TASKS",
    "Binary",
    "Counts",
    "MultiClass",
    "MultiLabel",
    "NextToken",
    "Ordinal",
    "Regression",
    "Task",
    "from_name",
    "intervals",
]
