"""Parts that may travel: every field of every part, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfl.client.task import SecureSumTerms
from dpfl.privacy import Flat, Gaussian, Poisson, Release
from dpfl.privacy.mechanisms.noises.noise_shares import NoiseShares
from dpfl.protocol import task_messages, wire_parts
from dpfl.refusals import ProtocolError, RefusalReason
from tests.protocol.test_task_messages import TASK


def places(words: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(words, dict):
        for name, value in words.items():
            yield (*path, name)
            yield from places(value, (*path, name))


def changed(path: tuple[Any, ...], value: Any) -> Any:
    words = task_messages.task_to_words(TASK)
    inner: Any = words
    for name in path[:-1]:
        inner = inner[name]
    if value is DELETE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return words


DELETE = object()


PLACES = list(places(task_messages.task_to_words(TASK)))


ODD = st.sampled_from(
    [
        DELETE,
        "os:system",
        [],
        {},
        "1",
        b"",
        -1,
        -1.0,
        1e31,
        10**400,
        math.nan,
        math.inf,
        [1],
        {"part": "task"},
    ]
)


@given(st.sampled_from(PLACES), ODD)
def test_a_field_that_is_missing_or_of_another_type_or_out_of_range_is_refused(
    path: tuple[Any, ...], odd: Any
) -> None:
    with pytest.raises(ProtocolError) as bad:
        task_messages.task_from_words(changed(path, odd))
    assert bad.value.reason in (RefusalReason.BAD_WORDS, RefusalReason.UNKNOWN_PART)


@given(st.sampled_from(PLACES))
def test_a_truth_value_is_no_number_and_a_number_no_truth_value(path: tuple[Any, ...]) -> None:
    before: Any = task_messages.task_to_words(TASK)
    for name in path:
        before = before[name]
    if isinstance(before, dict | str):
        return
    with pytest.raises(ProtocolError):
        task_messages.task_from_words(changed(path, 1 if isinstance(before, bool) else True))


@given(st.sampled_from([path for path in PLACES if path[-1] == "part"]))
def test_a_field_or_a_part_that_is_not_known_is_refused(path: tuple[Any, ...]) -> None:
    with pytest.raises(ProtocolError):
        task_messages.task_from_words(changed((*path[:-1], "more"), 1))
    for name in (
        "Popen",
        "Path",
        "Planned",
        "PlannedSGD",
        "Algorithm",
        "dpfl.client.descent.optimisers:SGD",
        "__class__",
        "Task",
    ):
        if len(path) > 1 or name != "Task":
            with pytest.raises(ProtocolError, match="unknown-part"):
                task_messages.task_from_words(changed(path, name))


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda one: (
            st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=5), one, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_any_other_words_are_refused(words: Any) -> None:
    for read in (
        task_messages.task_from_words,
        task_messages.learning_from_words,
        lambda words: task_messages.reply_from_words(words, {}),
    ):
        with pytest.raises(ProtocolError):
            read(words)


STAYS = {
    "clip.none": {"clip_norm"},
    "release": {"divisor"},
    "update-release": {"divisor", "by_samples"},
    "task": {"norms", "raw_values"},
    "clip.haar": {"public"},
}
"""What has one value over a wire: no bound; no public clients; and an upload's noise is the node's
own by then.
"""


def test_every_field_of_a_part_travels_and_what_does_not_is_refused() -> None:
    for name, (kind, forms) in wire_parts.ALL_PARTS.items():
        assert {field.name for field in fields(kind) if field.init} - set(forms) == STAYS.get(
            name, set()
        ), name
    shared = replace(
        TASK,
        samples=Release(Poisson(0.2), Flat(1.0), Gaussian(1.0), noise_shares=NoiseShares(3, 1)),
        secure_sum=SecureSumTerms(0.5, 1.0, 3),
    )
    assert task_messages.task_from_words(task_messages.task_to_words(shared)) == shared
    for odd in ({"weight": 1.5}, {"clients": 101}, {"bound": "1"}, {"more": 1}):
        words = task_messages.task_to_words(shared)
        words["secure_sum"] |= odd
        with pytest.raises(ProtocolError):
            task_messages.task_from_words(words)
