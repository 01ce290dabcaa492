"""The model card of a run: what the model was trained on, what that cost in privacy, and how to
load it without dpfl.

The card is passed on with the model. So it holds only what was released or declared: no seed, no
name of a client and no path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpfl.data.published_images import SCALES
from dpfl.privacy.units import protects_nobody
from dpfl.run.outcome_view import ending_in_words, metrics_in_words

if TYPE_CHECKING:
    from dpfl.algorithms import Algorithm
    from dpfl.privacy import Budget, PrivacyStatement
    from dpfl.run.prepare import PreparedRun
    from dpfl.run.result import Result

NAME = "README.md"
TITLE = "# Model card"
PRIVACY, LOADING, CLOSING = (
    "## What it cost in privacy",
    "## How to load it",
    "## Before you use it",
)
MOST_WORD = 200


def write_card(job: PreparedRun, result: Result) -> None:
    """Writes the card into the run's folder. A file of that name that is no card stays as it is.

    Args:
        job: The run.
        result: Its outcome.
    """
    path = job.folder.file(NAME)
    if not path.exists() or path.read_text(errors="replace").startswith(TITLE):
        job.folder.write_text(NAME, card(job, result))


def card(job: PreparedRun, result: Result) -> str:
    """Writes the card of a model.

    Names that users or files brought stand in code spans, where Markdown takes them for nothing but
    text.

    Args:
        job: The run.
        result: Its outcome.

    Returns:
        The card as Markdown.
    """
    parts = (
        _facts(job, result),
        privacy_lines(result.privacy),
        _loading(job),
        closing_lines(result.warnings),
    )
    return "\n".join([TITLE, "", *(line for part in parts for line in part)]) + "\n"


def _facts(job: PreparedRun, result: Result) -> Iterator[str]:
    source, layout = job.source, job.recorder.model.layout
    yield "| | |"
    yield "|---|---|"
    yield f"| model | {word(_model(job))}, {layout.trainable:,} trained parameters |"
    yield (
        f"| task | {word(source.task.name)}; a sample has the shape "
        f"{word(str(tuple(source.shape)))} |"
    )
    yield (
        f"| data | {word(source.train.name)}, {len(source.sizes):,} clients, dealt by "
        f"{word(_partition_text(source.how))} |"
    )
    yield from rows_of_outcome(job.algorithm, job.budget, result.to_dict())
    yield ""


def rows_of_outcome(algorithm: Algorithm, budget: Budget, outcome: Mapping[str, Any]) -> list[str]:
    """Writes the rows of the table that follow from a run's record and its outcome.

    Args:
        algorithm: The system as it ran.
        budget: The budget of the run.
        outcome: The content of `result.json`.

    Returns:
        A line of Markdown per row.
    """
    values = {
        name: math.nan if value is None else float(value)
        for name, value in outcome["metrics"].items()
    }
    metrics_text = metrics_in_words(values, {}) or "nothing: no public test set"
    noisy = f" ({outcome['noisy']})" if outcome.get("noisy") else ""
    return [
        f"| system | {word(algorithm.name)}, {algorithm.variant} |",
        f"| budget | {', '.join(_budget(budget, algorithm.unit))} |",
        f"| ended | after {outcome['rounds']} rounds; {ending_in_words(outcome['stopped_by'])} |",
        f"| measured | {_prose(metrics_text + noisy)} |",
        f"| weights | SHA-256 {word(outcome['model_sha256'])} |",
    ]


def _budget(budget: Budget, unit: str) -> Iterator[str]:
    if budget.epsilon is not None and not protects_nobody(unit):
        yield f"epsilon {budget.epsilon:g} at delta {budget.delta:g} for one {unit}"
    for name in ("rounds", "bytes", "seconds"):
        if (value := getattr(budget, name)) is not None:
            yield f"{value:,} {name}"


def privacy_lines(statement: PrivacyStatement) -> Iterator[str]:
    """Writes the section with the privacy statement.

    Args:
        statement: The statement of the run.

    Yields:
        The lines of the section.
    """
    yield PRIVACY
    yield ""
    for line in str(statement).splitlines():
        yield f"    {_plain(line)}"
    yield ""
    yield (
        "The glossary in dpfl's documentation explains these terms. `statement.json` holds the "
        "same for programs."
    )
    yield (
        "`dpfl certify` signs it. Whatever is done with the model from now on costs no more "
        "privacy."
    )
    yield ""


def _loading(job: PreparedRun) -> Iterator[str]:
    from dpfl.models.code import as_code

    module = job.recorder.model.module
    code, partial = (
        as_code(module),
        set(module.state_dict()) != set(job.recorder.model.layout.names),
    )
    yield LOADING
    yield ""
    yield (
        "With PyTorch and safetensors; dpfl is not needed."
        if code
        else (
            "You need PyTorch, safetensors, and your own class of the model, "
            f"{word(type(module).__qualname__)}."
        )
    )
    yield ""
    yield "```python"
    yield "from safetensors.torch import load_file"
    yield from (code or "model = ...  # built as for training").splitlines()
    strict = ", strict=False" if partial else ""
    yield f'model.load_state_dict(load_file("model.safetensors"){strict})'
    yield "model.eval()"
    yield "```"
    yield ""
    if partial:
        yield "The file has the trained parameters only; the others come from the model you build."
        yield ""
    yield from _inputs(job)


def _inputs(job: PreparedRun) -> Iterator[str]:
    """Says what a sample must look like."""
    source, scale = job.source, SCALES.get(job.source.train.name)
    if tuple(source.shape) != tuple(job.data.shape):
        yield (
            f"It takes fixed features of a sample, of shape {word(str((-1, *job.data.shape)))}, "
            "which "
            "dpfl makes:"
        )
        yield f"{word(_features(job))}."
    elif job.data.train.schema:
        yield (
            "It takes one row as numbers, followed by one code per category. The file's metadata "
            "says under `schema` how a raw row"
        )
        yield (
            "becomes such a row: how cells are clamped, filled in and scaled, and which levels "
            "there are, in the order of their codes."
        )
        yield "`examples/predict_without_dpfl.py` of dpfl reads raw rows in this way."
    else:
        yield (
            f"It takes float32 samples of shape {word(str((-1, *source.shape)))}, in the scale "
            "that they had in training."
        )
    if scale and not job.data.train.schema:
        mean, deviation = scale
        yield (
            "Images of bytes are scaled as "
            f"{word(f'(image / 255 - {list(mean)}) / {list(deviation)}')}, by channel."
        )
    yield ""


def closing_lines(warnings: Iterable[str]) -> Iterator[str]:
    """Writes the last section, with the warnings of the run.

    Args:
        warnings: The warnings, as sentences.

    Yields:
        The lines of the section.
    """
    yield CLOSING
    yield ""
    yield "- The metrics are for the test set named above. Measure again on your own data."
    yield (
        "- The guarantee protects the unit in the statement against the adversary in it, under "
        "the assumptions in it."
    )
    for warning in warnings:
        yield f"- Warning: {_prose(warning)}"


def _partition_text(how: str) -> str:
    """Says how the data was dealt, without the path of a file."""
    return "mapping" if how.startswith("mapping(") else how


def _model(job: PreparedRun) -> str:
    return str(job.folder.experiment()["resolved"].get("model", ""))


def _features(job: PreparedRun) -> str:
    """Writes how the features are made, as Python."""
    options = job.folder.experiment()["resolved"].get("model_options", {})
    arguments = ", ".join(
        [repr(_model(job)), *(f"{name}={value!r}" for name, value in options.items())]
    )
    return (
        f"dpfl.models.feature_map(dpfl.models.from_name({arguments}), "
        f"{tuple(job.source.shape)})(samples)"
    )


def word(text: str) -> str:
    """Writes a text as a code span, in which Markdown and HTML have no meaning.

    Args:
        text: Any text.

    Returns:
        The span: one line of at most 200 characters, without backticks and vertical bars.
    """
    return f"`{_plain(text).replace('`', chr(0x2019)).replace('|', '/')[:MOST_WORD] or ' '}`"


def _plain(text: str) -> str:
    """Puts a text on one line, with spaces for what cannot be printed."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _prose(text: str) -> str:
    """Writes words of others into a sentence. Characters with a meaning in Markdown or HTML are
    escaped.
    """
    return re.sub(r"([\\`*_\[\]<>&|#])", r"\\\1", _plain(text))
