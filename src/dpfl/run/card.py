"""The model card of a run: what the model was trained on, what that cost in privacy, and how to load it without dpfl.

It is passed on with the model, so it holds what was released or declared: no seed, no name of a client, no path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpfl.data.catalog import SCALES
from dpfl.models.code import as_code
from dpfl.run.metrics import figure

if TYPE_CHECKING:
    from dpfl.run.prepare import Job
    from dpfl.run.train import Result

NAME = "README.md"
TITLE = "# Model card"
MOST_WORD = 200


def write_card(job: Job, result: Result) -> None:
    """Beside the model; a file of that name that is somebody else's stays as it is."""
    path = job.folder.file(NAME)
    if not path.exists() or path.read_text(errors="replace").startswith(TITLE):
        job.folder.write_text(NAME, card(job, result))


def card(job: Job, result: Result) -> str:
    """Markdown; words that came from elsewhere stand in code, where they are nothing but words."""
    parts = (_facts(job, result), _privacy(result), _loading(job), _before_use(result))
    return "\n".join([TITLE, "", *(line for part in parts for line in part)]) + "\n"


def _facts(job: Job, result: Result) -> Iterator[str]:
    source, layout = job.source, job.recorder.model.layout
    yield "| | |"
    yield "|---|---|"
    yield f"| model | {word(_model(job))}, {layout.trainable:,} trained parameters |"
    yield f"| task | {word(source.task.name)}; a sample has the shape {word(str(tuple(source.shape)))} |"
    yield f"| data | {word(source.train.name)}, {len(source.sizes):,} clients, dealt by {word(_dealt(source.how))} |"
    yield f"| system | {word(job.algorithm.name)}, {job.algorithm.variant} |"
    yield f"| budget | {', '.join(_budget(job))} |"
    yield f"| ended | after {result.rounds} rounds, by {result.stopped_by} |"
    measured = ", ".join(figure(name, value) for name, value in result.metrics.items()) or "nothing: no public test set"
    yield f"| measured | {_prose(measured + (f' ({result.noisy})' if result.noisy else ''))} |"
    yield f"| weights | SHA-256 {word(result.model_sha256)} |"
    yield ""


def _budget(job: Job) -> Iterator[str]:
    budget = job.budget
    if budget.epsilon is not None and job.algorithm.unit != "none":
        yield f"epsilon {budget.epsilon:g} at delta {budget.delta:g} for one {job.algorithm.unit}"
    for name in ("rounds", "bytes", "seconds"):
        if (value := getattr(budget, name)) is not None:
            yield f"{value:,} {name}"


def _privacy(result: Result) -> Iterator[str]:
    yield "## What it cost in privacy"
    yield ""
    for line in str(result.privacy).splitlines():
        yield f"    {_plain(line)}"
    yield ""
    yield "The glossary of dpfl's documentation explains the words; `statement.json` has the same for programs, and"
    yield "`dpfl certify` signs it. What is done with the model from here on costs nothing more."
    yield ""


def _loading(job: Job) -> Iterator[str]:
    module = job.recorder.model.module
    code, partial = as_code(module), set(module.state_dict()) != set(job.recorder.model.layout.names)
    yield "## How to load it"
    yield ""
    yield (
        "With PyTorch and safetensors; dpfl is not needed."
        if code
        else (
            f"With PyTorch and safetensors, and the class of the model, {word(type(module).__qualname__)}, as it was brought."
        )
    )
    yield ""
    yield "```python"
    yield "from safetensors.torch import load_file"
    yield from (code or "model = ...  # built as for training").splitlines()
    yield f'model.load_state_dict(load_file("model.safetensors"){", strict=False" if partial else ""})'
    yield "model.eval()"
    yield "```"
    yield ""
    if partial:
        yield "The file has what was trained; what stayed as it was, is the model's own."
        yield ""
    yield from _inputs(job)


def _inputs(job: Job) -> Iterator[str]:
    """What a sample must look like."""
    source, scale = job.source, SCALES.get(job.source.train.name)
    if tuple(source.shape) != tuple(job.shape):
        yield f"It takes fixed features of a sample, of shape {word(str((-1, *job.shape)))}, which dpfl makes:"
        yield f"{word(_features(job))}."
    elif job.schema:
        yield "It takes a row as numbers, then a code a category. The file's own metadata says under `schema` how a raw row"
        yield "becomes one: what is clamped, filled in and scaled, and which levels there are, in the order of their codes;"
        yield "`examples/predict_without_dpfl.py` of dpfl reads raw rows by it."
    else:
        yield f"It takes float32 samples of shape {word(str((-1, *source.shape)))}, in the scale that they had in training."
    if scale and not job.schema:
        mean, deviation = scale
        yield f"Images of bytes are scaled as {word(f'(image / 255 - {list(mean)}) / {list(deviation)}')}, by channel."
    yield ""


def _before_use(result: Result) -> Iterator[str]:
    yield "## Before you use it"
    yield ""
    yield "- What was measured is of the test set named above. Measure again on data of your own."
    yield "- The guarantee is for the unit in the statement, against the adversary in it, under what it assumes."
    for warning in result.warnings:
        yield f"- Warning: {_prose(warning)}"


def _dealt(how: str) -> str:
    """Without the place of a file."""
    return "mapping" if how.startswith("mapping(") else how


def _model(job: Job) -> str:
    return str(job.folder.experiment()["resolved"].get("model", ""))


def _features(job: Job) -> str:
    """How they are made, as Python."""
    options = job.folder.experiment()["resolved"].get("model_options", {})
    named = ", ".join([repr(_model(job)), *(f"{name}={value!r}" for name, value in options.items())])
    return f"dpfl.models.feature_map(dpfl.models.from_name({named}), {tuple(job.source.shape)})(samples)"


def word(text: str) -> str:
    """A code span: Markdown and HTML inside it are shown as they are."""
    return f"`{_plain(text).replace('`', chr(0x2019)).replace('|', '/')[:MOST_WORD] or ' '}`"


def _plain(text: str) -> str:
    """One line of what can be printed."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _prose(text: str) -> str:
    """Words of others in a sentence: what Markdown and HTML would take for more is escaped."""
    return re.sub(r"([\\`*_\[\]<>&|#])", r"\\\1", _plain(text))
