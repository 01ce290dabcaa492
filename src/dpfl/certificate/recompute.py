"""Computes every figure of a certificate again, from the releases that the certificate lists."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dpfl.certificate import contents
from dpfl.certificate.check import VerificationCheck
from dpfl.certificate.contents import display_figure
from dpfl.certificate.figures import TOLERANCE, Epsilon, number, same_figure, stated_figure
from dpfl.certificate.sections import AccountSection, Certificate
from dpfl.errors import DpflError
from dpfl.privacy.accounting.accountant import accountant, proven_accountant
from dpfl.privacy.accounting.calibration import check_target
from dpfl.privacy.accounting.events import EventCounts, decode, describe
from dpfl.privacy.ledger.client_ledgers import FEDERATION
from dpfl.run.records.digests import code_sha256

UNCOMPUTABLE = (DpflError, ArithmeticError, MemoryError, ValueError)
"""What an accountant raises for releases that no run makes."""


def check_epsilon(certificate: Certificate) -> VerificationCheck:
    """Computes the epsilon of every account again, by the accountant that is named.

    Args:
        certificate: The contents.

    Returns:
        The check.
    """
    guarantee, findings = certificate.guarantee, []
    try:
        proven_accountant(guarantee.accountant)
        check_target(1.0, guarantee.delta)
        for account in certificate.accounts:
            findings += list(_account_figures(account, guarantee.accountant, guarantee.delta))
        if guarantee.neighbours not in (among := contents.neighbours(certificate.accounts)):
            findings.append(
                f"The listed releases are proven for neighbours '{among[0]}', not "
                f"'{guarantee.neighbours}'."
            )
        for name, epsilon in contents.spread(certificate.accounts).items():
            if not same_figure(epsilon, getattr(guarantee, name)):
                which = "largest" if name == "proven" else name
                findings.append(
                    f"The {which} epsilon of the accounts is {epsilon}; the certificate states "
                    f"{getattr(guarantee, name)}."
                )
    except UNCOMPUTABLE as error:
        findings.append(f"Epsilon cannot be computed again: {error}")
    if guarantee.unaccounted and guarantee.proven != "unbounded":
        findings.append(
            "The run released something without protection "
            f"({'; '.join(guarantee.unaccounted)}), but "
            f"the certificate states epsilon {guarantee.proven}."
        )
    if number(guarantee.used) > number(guarantee.proven) + TOLERANCE:
        findings.append(
            f"The certificate states that {guarantee.used} was used, which is more than is proven "
            f"({guarantee.proven})."
        )
    outcome = (
        f"{display_figure(guarantee.proven)}, computed again for {len(certificate.accounts)} "
        f"accounts by {guarantee.accountant}"
    )
    return VerificationCheck("epsilon", outcome, tuple(findings))


def _account_figures(account: AccountSection, by: str, delta: float) -> Iterator[str]:
    events = {decode(release.event): release.count for release in account.releases}
    epsilon = _epsilon_again(events, by, delta, account.proven)
    once = len(events) == len(account.releases)
    if not once or any(release.count < 1 for release in account.releases):
        yield f"{account.name}: its releases are not listed once each, with a count of at least 1."
    elif not same_figure(epsilon, account.proven):
        yield (
            f"{account.name}: the listed releases cost epsilon {epsilon}; the certificate states "
            f"{account.proven}."
        )
    for release in account.releases:
        if release.kind != describe(decode(release.event)):
            yield (
                f"{account.name}: {release.event} is called '{release.kind}', but is "
                f"{describe(decode(release.event))}."
            )


def _epsilon_again(events: EventCounts, by: str, delta: float, stated_epsilon: Epsilon) -> Epsilon:
    """Computes an epsilon by the accountant that is named.

    Where RDP is far from what is stated, RDP alone answers, since a tight accountant could take
    very long on forged releases.
    """
    quick = stated_figure(accountant("rdp").epsilon(events, delta))
    if stated_epsilon == "unbounded" or number(quick) > 10 * number(stated_epsilon) + 100:
        return quick
    return stated_figure(accountant(by).epsilon(events, delta))


def check_claim(certificate: Certificate) -> VerificationCheck:
    """Computes the claimed epsilon again, from what the paper counts, by its own accountant.

    Args:
        certificate: The contents.

    Returns:
        The check. A claim that comes from a formula is not computed again.
    """
    claim = certificate.claimed
    if claim.epsilon is None:
        return VerificationCheck("claimed", f"nothing ({claim.text})")
    if claim.accountant is None:
        return VerificationCheck(
            "claimed",
            f"{display_figure(claim.epsilon)} by a formula ({claim.text}), which is not computed "
            "again",
        )
    try:
        events = {decode(event): count for event, count in claim.stated.items()}
        epsilon = _epsilon_again(
            events, claim.accountant, certificate.guarantee.delta, claim.epsilon
        )
    except UNCOMPUTABLE as error:
        return VerificationCheck(
            "claimed", "", (f"The claimed epsilon cannot be computed again: {error}",)
        )
    difference = (
        f"What the paper counts costs {epsilon} by {claim.accountant}; the certificate states "
        f"{claim.epsilon} as claimed."
    )
    return VerificationCheck(
        "claimed",
        f"{display_figure(claim.epsilon)}, computed again",
        () if same_figure(epsilon, claim.epsilon) else (difference,),
    )


def check_listing(certificate: Certificate, names: Sequence[str] | None) -> VerificationCheck:
    """Checks that every account is listed, and listed once.

    Args:
        certificate: The contents.
        names: The accounts of the run; None where its folder is not available.

    Returns:
        The check.
    """
    listed_names, findings = [account.name for account in certificate.accounts], []
    findings += [
        f"The account of {name} is listed twice."
        for name, count in Counter(listed_names).items()
        if count > 1
    ]
    for account in certificate.accounts:
        if account.ledger != f"{account.name}.sqlite":
            findings.append(
                f"The account of {account.name} names the ledger {account.ledger}, which belongs "
                "to another account."
            )
        if min(account.other_runs, account.debits) < 0:
            findings.append(
                f"{account.name} cannot have {account.debits} debits and {account.other_runs} "
                "other runs."
            )
    if names is None:
        clients = certificate.trained.clients
        if set(listed_names) != {FEDERATION} and len(set(listed_names)) != clients:
            findings.append(
                f"The certificate lists {len(set(listed_names))} accounts of {clients} clients."
            )
        return VerificationCheck(
            "accounts", f"{len(listed_names)}, each listed once", tuple(findings)
        )
    findings += [
        f"The account of {owner} is missing from the certificate."
        for owner in names
        if owner not in listed_names
    ]
    return VerificationCheck(
        "accounts", "every account of the run, each listed once", tuple(findings)
    )


def check_issue(certificate: Certificate, last_debit: float | None = None) -> VerificationCheck:
    """Checks when and with which version the certificate was made.

    Only the signer knows when. But it cannot be before the last debit that the certificate counts.

    Args:
        certificate: The contents.
        last_debit: The time of the last debit, in seconds since 1970, where it is known.

    Returns:
        The check.
    """
    findings, not_checked = (
        [],
        [f"When it was issued: {certificate.issued} is what the signer states."],
    )
    try:
        issue_time = datetime.datetime.fromisoformat(certificate.issued)
        if issue_time.tzinfo is None:
            raise ValueError("it names no time zone")
        if last_debit is not None and issue_time.timestamp() < int(last_debit):
            findings.append(
                f"It claims to be issued at {certificate.issued}, before the last debit that it "
                "counts."
            )
    except (ValueError, OverflowError) as error:
        findings.append(f"It does not say when it was issued ({certificate.issued!r}: {error}).")
    by: dict[str, Any] = certificate.certified_by
    if by.keys() != {"dpfl", "code"}:
        findings.append(
            f"certified_by holds {', '.join(by) or 'nothing'} instead of a version and a digest of "
            "the code."
        )
    elif by["code"] != code_sha256():
        not_checked.append(
            f"certified_by: dpfl {by['dpfl']} made the certificate, and its code differs from this "
            "installation."
        )
    elif by["dpfl"] != contents.version():
        findings.append(
            f"certified_by says dpfl {by['dpfl']}; this code is dpfl {contents.version()}."
        )
    return VerificationCheck(
        "issued", f"{certificate.issued}, as its signer states", tuple(findings), tuple(not_checked)
    )
