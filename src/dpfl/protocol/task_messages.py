"""Tasks and replies as words and numbers, and back: a list of the parts that may come over a wire,
and of every field of each.

A part is written as the codec writes it (`dpfl.codec`); this list holds the bounds of each field.
What is not listed is refused: another part, a field too many or too few, another type, a number
that is not finite or out of range. Numbers stay as they are written, whole or not, so that a task
is the same, and has the same name, on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import torch

from dpfl import tasks
from dpfl.client.objectives import Contrastive, CrossEntropy, PerturbedScores
from dpfl.client.optimisers import SGD, AdaGrad, Adam, Momentum
from dpfl.client.task import ClientReply, ClientTask, LocalTraining, SecureSumTerms
from dpfl.codec import TAG, encode, format_of, tag_of
from dpfl.errors import DpflError
from dpfl.privacy.mechanisms.clip import Flat, ModelClip, NoClip, PerLayer, PublicMedian, Quantile
from dpfl.privacy.mechanisms.haar_release import HaarClip, HaarNoise
from dpfl.privacy.mechanisms.matrix_release import BandedNoise
from dpfl.privacy.mechanisms.noise import FlooredGaussian, Gaussian
from dpfl.privacy.mechanisms.noise_shares import NoiseShares
from dpfl.privacy.mechanisms.release import Release, UpdateRelease
from dpfl.privacy.mechanisms.sampling import (
    All,
    Cyclic,
    FixedCohort,
    FixedSize,
    Poisson,
    PoissonSize,
)
from dpfl.privacy.mechanisms.secure_noise import SecureGaussian
from dpfl.privacy.queries.columns import ColumnQuery
from dpfl.privacy.queries.histogram import LabelQuery
from dpfl.privacy.queries.mean import MeanQuery
from dpfl.privacy.queries.metric import MetricQuery
from dpfl.refusals import SENTENCES, ProtocolError, RefusalReason

__all__ = [
    "REASONS",
    "ProtocolError",
    "learning_from_words",
    "learning_to_words",
    "order_of",
    "reply_from_words",
    "reply_to_words",
    "shared_to_words",
    "task_from_words",
    "task_to_words",
]

REASONS = {str(reason): sentence for reason, sentence in SENTENCES.items()}
"""Every word that a node refuses by, with its sentence."""

LARGEST = 1e30
MOST_WHOLE = 1_000_000_000
MOST_LISTED = 100_000
MOST_TEXT = 64
MOST_MEMBERS = 100
"""Of a secure sum."""
MOST_PLACES, MOST_BINS = 10_000, 1_000
"""Of a survey of columns, whose answer has a number for each."""
RAW = ("answer", "distance", "gradient", "gradients", "last_losses", "last_step", "losses", "slope")
"""What a node may say beside an update."""

Form = Callable[[Any], Any]
"""A value as JSON holds it to the value of a field; `Bad` where it is none."""
Parts = Mapping[str, tuple[type[Any], Mapping[str, Form]]]


def refuse(reason: RefusalReason = RefusalReason.BAD_WORDS) -> NoReturn:
    raise ProtocolError(reason)


def truth(value: Any) -> bool:
    return value if type(value) is bool else refuse()


def whole(least: int = 0, most: int = MOST_WHOLE) -> Form:
    return lambda value: value if type(value) is int and least <= value <= most else refuse()


def number(value: Any) -> float:
    return value if type(value) in (int, float) and -LARGEST <= value <= LARGEST else refuse()


def share(value: Any) -> float:
    """Of what an optimiser keeps from step to step: with all of it or more, steps grow without
    bound.
    """
    return value if 0 <= number(value) < 1 else refuse()


def positive(value: Any) -> float:
    return value if number(value) > 0 else refuse()


def text(value: Any) -> str:
    return (
        value
        if type(value) is str and len(value) <= MOST_TEXT and value.isprintable()
        else refuse()
    )


def one_of(*words: str) -> Form:
    return lambda value: value if type(value) is str and value in words else refuse()


def optional(form: Form) -> Form:
    return lambda value: None if value is None else form(value)


def listed(form: Form, most: int = MOST_LISTED) -> Form:
    def found(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or len(value) > most:
            refuse()
        return tuple(form(one) for one in value)

    return found


def _binned(value: Any) -> tuple[int, int]:
    if type(value) is not list or len(value) != 2:
        refuse()
    return whole(0, MOST_PLACES)(value[0]), whole(1, MOST_BINS)(value[1])


def part(known: Parts) -> Form:
    return lambda value: _made(value, known)


def _parts(*kinds: tuple[type[Any], Mapping[str, Form]]) -> Parts:
    return {format_of(kind).tag: (kind, forms) for kind, forms in kinds}


def _made(value: Any, known: Parts) -> Any:
    if type(value) is not dict or type(value.get(TAG)) is not str:
        refuse()
    if value[TAG] not in known:
        refuse(RefusalReason.UNKNOWN_PART)
    kind, forms = known[value[TAG]]
    names = format_of(kind).names
    if value.keys() != {TAG, *(names[attribute] for attribute in forms)}:
        refuse()
    given = {attribute: form(value[names[attribute]]) for attribute, form in forms.items()}
    try:
        return kind(**given)
    except (DpflError, TypeError, ValueError, ArithmeticError):
        refuse()


RATE = {"rate": number}
LEVEL = {"clip_norm": number}
HAAR = {"weights": text, "by_layer": truth, "energies": listed(number), "ends": listed(whole(1))}
OPTIMISERS = _parts(
    (SGD, RATE),
    (Momentum, {**RATE, "beta": share}),
    (Adam, {**RATE, "beta1": share, "beta2": share, "epsilon": positive}),
    (AdaGrad, {**RATE, "epsilon": positive}),
)
OBJECTIVES = _parts(
    (CrossEntropy, {}),
    (Contrastive, {"mu": number, "temperature": number}),
    (PerturbedScores, {"share": number, "deviation": number}),
)
SAMPLINGS = _parts(
    (All, {}),
    (Poisson, {"rate": number}),
    *((kind, {"size": whole(1)}) for kind in (PoissonSize, FixedSize, FixedCohort, Cyclic)),
)
CLIPS = _parts(
    (NoClip, {}),
    *((kind, LEVEL) for kind in (Flat, PerLayer, PublicMedian, ModelClip)),
    (Quantile, {**LEVEL, "quantile": number, "rate": number, "count_noise": number}),
    (HaarClip, {**LEVEL, "bound": text, **HAAR}),
)
NOISES = _parts(
    (Gaussian, {"noise_multiplier": number}),
    (SecureGaussian, {"noise_multiplier": number}),
    (FlooredGaussian, {"noise_multiplier": number, "floor": number}),
    (HaarNoise, {"noise_multiplier": number, **HAAR, "lemma": truth, "portion": optional(number)}),
    (
        BandedNoise,
        {
            "noise_multiplier": number,
            "bands": optional(whole(1)),
            "rounds": whole(),
            "turns": whole(1),
        },
    ),
)
SURVEYS = _parts(
    (LabelQuery, {"noise_multiplier": optional(number), "trusted": truth, "secure": truth}),
    (MeanQuery, {"noise_multiplier": number, "secure": truth}),
    (
        ColumnQuery,
        {
            "noise_multiplier": number,
            "numbers": whole(0, MOST_PLACES),
            "places": listed(whole(0, MOST_PLACES), MOST_PLACES),
            "binned": listed(_binned, MOST_PLACES),
            "secure": truth,
        },
    ),
    (
        MetricQuery,
        {
            "noise_multiplier": number,
            "numbers": whole(0, MOST_PLACES),
            "cells": whole(0, MOST_PLACES),
            "most": number,
            "held_out": number,
            "secure": truth,
        },
    ),
)
SHARED = _parts(
    (NoiseShares, {"survivors": whole(1, MOST_MEMBERS), "colluders": whole(0, MOST_MEMBERS)})
)
SUMMED = _parts(
    (SecureSumTerms, {"weight": number, "bound": number, "clients": whole(1, MOST_MEMBERS)})
)
RELEASE: Mapping[str, Form] = {
    "sampling": part(SAMPLINGS),
    "clip": part(CLIPS),
    "noise": optional(part(NOISES)),
    "shared_by": optional(whole(2)),
    "divide_by_drawn": truth,
    "noise_shares": optional(part(SHARED)),
}
RELEASES = _parts((Release, RELEASE))
UPLOADS = _parts(
    (
        UpdateRelease,
        {**RELEASE, "sensitivity_bound": number, "protects": one_of("sample", "client")},
    )
)
LOCALS = _parts(
    (
        LocalTraining,
        {
            "optimiser": part(OPTIMISERS),
            "batch_size": whole(1),
            "prox": number,
            "objective": part(OBJECTIVES),
        },
    ),
)
TASKS = _parts(
    (
        ClientTask,
        {
            "round": whole(),
            "client": whole(),
            "steps": whole(),
            "local": part(LOCALS),
            "clients": part(RELEASES),
            "samples": optional(part(RELEASES)),
            "horizon": whole(),
            "raw": truth,
            "update": optional(part(UPLOADS)),
            "query": optional(part(SURVEYS)),
            "slope": truth,
            "secure_sum": optional(part(SUMMED)),
        },
    ),
)
LEARNING = _parts(
    (tasks.MultiClass, {"classes": whole(1), "weights": listed(number)}),
    (tasks.Binary, {"weights": listed(number)}),
    (tasks.MultiLabel, {"count": whole(1)}),
    (tasks.Ordinal, {"levels": whole(2)}),
    (tasks.Regression, {"loss": text, "centre": number, "scale": number, "width": number}),
    (tasks.Counts, {"mean": number}),
    (tasks.NextToken, {"vocabulary": whole(1)}),
)
KNOWN: Parts = {
    name: kind
    for group in (
        OPTIMISERS,
        OBJECTIVES,
        SAMPLINGS,
        CLIPS,
        NOISES,
        SURVEYS,
        SHARED,
        SUMMED,
        RELEASES,
        UPLOADS,
        LOCALS,
        TASKS,
        LEARNING,
    )
    for name, kind in group.items()
}
"""All that may travel."""


def _to_words(value: Any, known: Parts) -> dict[str, Any]:
    """Words from which the same is made again; refused where that is not so."""
    try:
        words = encode(value)
    except DpflError:
        refuse(RefusalReason.UNKNOWN_PART)
    if _made(words, known) != value:
        refuse()
    return words  # type: ignore[no-any-return]


def task_to_words(task: ClientTask) -> dict[str, Any]:
    return _to_words(task, TASKS)


def task_from_words(words: Any) -> ClientTask:
    return _made(words, TASKS)  # type: ignore[no-any-return]


def shared_to_words(shared: NoiseShares) -> dict[str, Any]:
    return _to_words(shared, SHARED)


def learning_to_words(task: tasks.Task) -> dict[str, Any]:
    """What is to be predicted: the task of a run's data."""
    return _to_words(task, LEARNING)


def learning_from_words(words: Any) -> tasks.Task:
    return _made(words, LEARNING)  # type: ignore[no-any-return]


def order_of(task: ClientTask, session: str = "") -> str:
    """What an order is known by, with its run: a round is trained once, and a survey is asked once
    in a run. For a secure sum that is once in a session: with new keys it is another release."""
    name = f"0/{tag_of(task.query)}" if task.query else f"{task.round}/train"
    return f"{name}/{session[:32]}" if task.noise_shares else name


def reply_to_words(reply: ClientReply) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A release, as words and arrays; a refusal or a failure has none, and is a letter of another
    kind.
    """
    if reply.refused or reply.failed or (reply.update is None and not reply.raw):
        refuse()
    arrays = {f"raw_{name}": np.asarray(value) for name, value in (reply.raw or {}).items()}
    if reply.update is not None:
        arrays["update"] = reply.update.detach().numpy()
    return {"client": reply.client, "inside": bool(reply.inside)}, arrays


def reply_from_words(
    words: Any, arrays: Mapping[str, np.ndarray], size: int | None = None
) -> ClientReply:
    """An update is a row of float32 (of `size` numbers, where that is said), and what is beside it
    no longer than a model.
    """
    if type(words) is not dict or words.keys() != {"client", "inside"}:
        refuse()
    client, inside = whole()(words["client"]), truth(words["inside"])
    raw = {name.removeprefix("raw_"): array for name, array in arrays.items() if name != "update"}
    if any(
        f"raw_{name}" not in arrays or name not in RAW or array.ndim > 1
        for name, array in raw.items()
    ):
        refuse(RefusalReason.BAD_ARRAYS)
    if any(array.dtype.kind != "f" for array in raw.values()):
        refuse(RefusalReason.BAD_ARRAYS)
    update = arrays.get("update")
    if update is None:
        return (
            ClientReply(client, inside=inside, raw=raw) if raw else refuse(RefusalReason.BAD_ARRAYS)
        )
    longest = max([array.size for array in raw.values()], default=0)
    if (
        update.dtype != np.float32
        or update.ndim != 1
        or update.size != (update.size if size is None else size)
    ):
        refuse(RefusalReason.BAD_ARRAYS)
    if longest > max(update.size, 1):
        refuse(RefusalReason.BAD_ARRAYS)
    return ClientReply(client, torch.from_numpy(update), inside, raw=raw or None)
