"""Compares the model card of a run with the statement, the record and the result behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpfl.certificate.check import VerificationCheck
from dpfl.certificate.earlier_words import in_present_words
from dpfl.certificate.finished_run import FinishedRun
from dpfl.certificate.reading import own_card
from dpfl.privacy import Budget
from dpfl.run.records.model_card import (
    CLOSING,
    LOADING,
    NAME,
    PRIVACY,
    TITLE,
    closing_lines,
    privacy_lines,
    rows_of_outcome,
)

ALWAYS = (
    "proven",
    "claimed",
    "used",
    "unit",
    "warning",
    "adversary",
    "noise",
    "releases",
    "asked",
    "not accounted for",
    "assumes",
)
"""Headings of a statement that the cards of all versions have."""

EPSILON = re.compile(r"(?:epsilon|ε)\W*(?:is|of|was|below|under|at most)?\W*\d", re.IGNORECASE)
"""An epsilon in prose; the cards that a run writes have none there."""


def check_card(finished_run: FinishedRun) -> VerificationCheck:
    """Checks that the card says what the other files of the run say.

    Args:
        finished_run: The run.

    Returns:
        The check. It names the parts that no other file can confirm.
    """
    text = own_card(finished_run.folder)
    if text is None:
        words = (
            f"{NAME} is not the card that the run wrote."
            if finished_run.folder.file(NAME).exists()
            else f"There is no {NAME}."
        )
        return VerificationCheck("card", "not the run's", not_checked=(words,))
    try:
        faults = tuple(
            f"{NAME} is not the card of this run: {fault}." for fault in _faults(text, finished_run)
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        faults = (
            f"{NAME} cannot be compared, since result.json is not as a run writes it ({error}).",
        )
    not_checked = f"In {NAME}: how to load the model, and the names of model, task and data."
    return VerificationCheck(
        "card", "statement, budget, rounds and metrics are those of the run", faults, (not_checked,)
    )


def _faults(text: str, finished_run: FinishedRun) -> Iterator[str]:
    lines = in_present_words(text).splitlines()
    rows = list(_outcome_rows(finished_run))
    headings = [line for line in lines if line.startswith("#") and line not in _code(lines)]
    if headings != [TITLE, PRIVACY, LOADING, CLOSING]:
        yield f"its headings are {', '.join(headings)}"
        return
    for part in (
        privacy_lines(finished_run.recorded_statement),
        closing_lines(finished_run.result["warnings"]),
    ):
        expected_section = _section(list(part))
        there = _section(lines[lines.index(expected_section[0]) :])
        expected_section = [
            line for line in expected_section if line in there or not _is_newer(line)
        ]
        if there != expected_section:
            odd = [
                line
                for line in (*there, *expected_section)
                if (line in there) != (line in expected_section)
            ]
            yield f"{expected_section[0][3:]!r} differs ({(odd or there)[0]!r})"
    for row in rows:
        label = row[: row.index("|", 2) + 1]
        if [line for line in lines if line.startswith(label)] != [row]:
            yield f"its row {label!r} is not {row!r}"
    own_lines = {
        *rows,
        *privacy_lines(finished_run.recorded_statement),
        *closing_lines(finished_run.result["warnings"]),
    }
    for line in lines:
        if line not in own_lines and EPSILON.search(line):
            yield f"it has an epsilon where the run wrote none ({line.strip()!r})"


def _outcome_rows(finished_run: FinishedRun) -> list[str]:
    budget = {
        name: value
        for name, value in finished_run.record["resolved"]["budget"].items()
        if name != "part"
    }
    return rows_of_outcome(finished_run.algorithm, Budget(**budget), finished_run.result)


def _section(lines: list[str]) -> list[str]:
    """Takes the lines up to the next heading, without empty lines and without padding."""
    end = next(
        (number for number in range(1, len(lines)) if lines[number].startswith("## ")), len(lines)
    )
    return [re.sub(r"(?<=\S) {2,}", "  ", line) for line in lines[:end] if line]


def _is_newer(line: str) -> bool:
    """Tells whether an earlier version may not have written this line of a statement."""
    return line.startswith("    ") and line.split("  ")[2] not in ALWAYS


def _code(lines: list[str]) -> set[str]:
    """Finds the lines of code blocks, whose comments look like headings."""
    fences = [number for number, line in enumerate(lines) if line.startswith("```")]
    return {
        line
        for start, end in zip(fences[::2], fences[1::2], strict=False)
        for line in lines[start:end]
    }
