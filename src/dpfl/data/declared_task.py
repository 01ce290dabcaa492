"""The task of a data set, as its owner declares it. Nothing in it follows from private labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpfl import tasks
from dpfl.bad_values import require_whole
from dpfl.errors import DpflError
from dpfl.tasks import Task
from dpfl.tasks.label_checks import whole

if TYPE_CHECKING:
    pass


from dpfl.data.dataset import Array, as_tensor

MOST_CLASSES = 1_000_000
"""The most classes that a task may have."""


def names_classes(task: Task | str | None) -> bool:
    """Says whether the labels of a task are classes, as far as its name tells.

    Args:
        task: A task, or its name in an experiment.

    Returns:
        Whether they are.
    """
    return (
        task.classes > 0
        if isinstance(task, Task)
        else task not in ("labels", "number", "counts", "tokens")
    )


def task_of(
    name: str,
    task: Task | str | None,
    classes: int | None,
    weights: Sequence[float] = (),
    test: Array | None = None,
) -> Task:
    """Makes the task that is declared for a data set.

    Args:
        name: The name of the data, for errors.
        task: A task, or its name in an experiment. Without one, labels are classes.
        classes: The declared number of classes, labels, levels or tokens.
        weights: The weights of the classes in the loss.
        test: The labels of the public test set.

    Returns:
        The task.

    Raises:
        DpflError: The declarations contradict each other, or one is missing.
    """
    if not isinstance(task, str | None):
        if classes is not None or weights:
            raise DpflError(
                "A task object has its own classes and weights: declare them in it, and leave out "
                "classes and weights here."
            )
        return task
    options: dict[str, Any] = {"weights": tuple(weights)} if weights else {}
    if task in (None, "classes"):
        return tasks.from_name("classes", classes=number_of_classes(name, classes, test), **options)
    sizes = {"labels": "count", "ordinal": "levels", "tokens": "vocabulary"}
    if task in sizes:
        if classes is None:
            raise DpflError(
                f"The task {task!r} of {name!r} needs its {sizes[task]} declared (data.classes, "
                "classes=)."
            )
        options[sizes[task]] = classes
    elif classes not in (None, tasks.from_name(task).classes):
        raise DpflError(
            f"The task {task!r} does not have {classes} classes: leave data.classes out."
        )
    return tasks.from_name(task, **options)


def number_of_classes(name: str, classes: int | None, test: Array | None) -> int:
    """Finds the number of classes: the declared number, or that of the public test set.

    It never follows from the labels of clients. It would tell that one of them has the last class.

    Args:
        name: The name of the data, for errors.
        classes: The declared number.
        test: The labels of the public test set.

    Returns:
        The number.

    Raises:
        DpflError: There is neither a declaration nor a test set, or the number is out of its range.
    """
    if classes is None:
        if test is None:
            raise DpflError(
                f"The number of classes of {name!r} is unknown, because private labels are not "
                "counted: declare it with data.classes (in Python: classes=)."
            )
        labels = whole(as_tensor(name, test), f"The labels of {name!r}")
        classes = int(labels.max()) + 1 if labels.numel() else 1
    require_whole(classes, "classes", least=1)
    if classes > MOST_CLASSES:
        raise DpflError(
            f"{name!r} would have {classes} classes: number them 0, 1, 2, ..., {MOST_CLASSES - 1} "
            "at most."
        )
    return classes
