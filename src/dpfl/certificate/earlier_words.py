"""Sentences of pages and model cards that earlier versions worded differently.

A page and a card are drawn again and compared when a certificate is verified. So that files of an
earlier version still match, their sentences are first brought into the words of this version.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

REWORDINGS = (
    (
        "one person, everything that they have at one client; a person at two clients counts "
        "twice, epsilon adds up",
        "one person, with all of their data at one client; a person at two clients counts twice, "
        "and the epsilons add up",
    ),
    (
        "floating-point, whose last digits can tell of the sum beneath; for real data it is not "
        "enough",
        "floating-point: the last digits of a sum can reveal the value without noise, so it is "
        "not safe for real data",
    ),
    (
        "secure: whole numbers on a grid, from a stream cipher",
        "secure: integers on a grid, drawn from a stream cipher",
    ),
    (
        "shared by the clients: whole numbers on a grid, from a stream cipher",
        "shared by the clients: integers on a grid, drawn from a stream cipher",
    ),
    (
        "of it; that number follows what came out and is no guarantee",
        "of that; this figure depends on the outcome and is no guarantee",
    ),
    (
        "of what is proven; it follows what came out, and is no guarantee",
        "of what is proven; this figure depends on the outcome and is no guarantee",
    ),
    ("What leaves unprotected: ", "Released without protection: "),
    (
        "The glossary of dpfl's documentation explains the words; `statement.json` has the same "
        "for programs, and\n`dpfl certify` signs it. What is done with the model from here on "
        "costs nothing more.",
        "The glossary in dpfl's documentation explains these terms. `statement.json` holds the "
        "same for programs.\n`dpfl certify` signs it. Whatever is done with the model from now on "
        "costs no more privacy.",
    ),
    (
        "- What was measured is of the test set named above. Measure again on data of your own.",
        "- The metrics are for the test set named above. Measure again on your own data.",
    ),
    (
        "- The guarantee is for the unit in the statement, against the adversary in it, under "
        "what it assumes.",
        "- The guarantee protects the unit in the statement against the adversary in it, under "
        "the assumptions in it.",
    ),
    ("What left without any accounting", "Released without accounting"),
    ("<h2>What is assumed</h2>", "<h2>Assumptions</h2>"),
    ("<h2>As reported by the run, not checked</h2>", "<h2>Reported by the run, not checked</h2>"),
    ("Name and office", "Name and position"),
    (
        "This page is a picture of the signed file beside it (.json), which alone counts. To check "
        "it and to compute every epsilon again:",
        "This page shows the signed file beside it (.json). Only that file is evidence. To verify "
        "it and to compute every epsilon again:",
    ),
    (" steps a client</td>", " steps per client</td>"),
    ("epsilon at least, measured by an attack", "lower bound on epsilon, measured by an attack"),
    (" (proven of it: ", " (proven there: "),
    (" rounds, by rounds |", " rounds; all rounds were run |"),
    (" rounds, by epsilon |", " rounds; the privacy budget is spent |"),
    (" rounds, by bytes |", " rounds; the communication budget is spent |"),
    (" rounds, by seconds |", " rounds; the time limit was reached |"),
    (" rounds, by survivors |", " rounds; too few clients were left for secure sums |"),
    (", ended by rounds</td>", "; all rounds were run</td>"),
    (", ended by epsilon</td>", "; the privacy budget is spent</td>"),
    (", ended by bytes</td>", "; the communication budget is spent</td>"),
    (", ended by seconds</td>", "; the time limit was reached</td>"),
    (", ended by survivors</td>", "; too few clients were left for secure sums</td>"),
    (" kinds more, which the signed file lists", " more kinds, listed in the signed file"),
    (
        "seed of the noise: this is a simulation, not a release.",
        "seed of the noise. Do not use such noise for real data.",
    ),
    ("<td>Releases of up to ", "<td>The counts include releases of up to "),
    (
        " other runs on the same ledgers are counted with these.",
        " other runs on the same ledgers.",
    ),
)
"""Earlier and present wording. The texts are fixed: no figure and no name is in any of them."""


def noise_row_in_present_words(page: str, entropy: str, noise: str, present: str) -> str:
    """Brings the noise row of an earlier page into the words of this version.

    Earlier pages knew two kinds of noise. They said "in floating point" of all noise that was not
    "secure", also where clients shared it.

    Args:
        page: The HTML, written by this or an earlier version.
        entropy: Where the random bits came from: "system", or a seed.
        noise: The kind of noise that the certificate states.
        present: The row as this version words it, as plain text.

    Returns:
        The HTML with the row reworded, if the earlier version would have written it so.
    """
    source = "the operating system" if entropy == "system" else "a seed"
    kind = "on a grid" if noise == "secure" else "in floating point"
    return page.replace(f">from {source}, {kind}</td>", f">{escape(present)}</td>")


def audit_box_in_present_words(page: str, audit: Mapping[str, Any] | None, present: str) -> str:
    """Brings the audit's figure on an earlier page into the form of this version.

    Earlier pages rounded what was measured, and what is proven of it, to the nearest of four
    decimals. They said "see file" where no game had measured an epsilon.

    Args:
        page: The HTML in present words, written by this or an earlier version.
        audit: The audit as the certificate lists it; None without one.
        present: The box as this version lays it out.

    Returns:
        The HTML with the box replaced, if the earlier version would have written it so.
    """
    outcome = audit or {}
    figure = _earlier_figure(outcome.get("measured")) if outcome else "not audited"
    there = ""
    if outcome.get("scope"):
        proven = _earlier_figure(outcome.get("proven"))
        there = f" on {outcome['scope']} (proven there: {proven})"
    label = f"lower bound on epsilon, measured by an attack{there}; as reported, not checked"
    earlier = f"<div><strong>{escape(figure)}</strong><span>{escape(label)}</span></div>"
    return page.replace(earlier, present)


def _earlier_figure(epsilon: Any) -> str:
    if epsilon is None or isinstance(epsilon, dict | list):
        return "see file"
    return f"{epsilon:.4f}" if isinstance(epsilon, float) else str(epsilon)


def in_present_words(text: str) -> str:
    """Brings a page or a model card into the words of this version.

    Args:
        text: The file, written by this or an earlier version.

    Returns:
        The same text with every earlier sentence replaced.
    """
    for earlier, present in REWORDINGS:
        text = text.replace(earlier, present)
    return text
