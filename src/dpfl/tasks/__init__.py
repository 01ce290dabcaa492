"""Tasks: what is to be predicted, the loss of a sample, and what is measured."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter, ValidationError

from dpfl.bad_values import choose, invalid, refuse_unknown_options
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
    """Finds a task by its name in an experiment.

    Args:
        name: The name.
        options: The task's options, such as its number of classes.

    Returns:
        The task.

    Raises:
        DpflError: There is no such task, or an option is unknown or wrong.
    """
    kind = choose("task", name, TASKS)
    refuse_unknown_options(f"The task {name!r}", options, [field.name for field in fields(kind)])
    try:
        task: Task = TypeAdapter(kind).validate_python(options)
    except ValidationError as error:
        raise invalid(error, f"the task {name!r}") from None
    return task


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
