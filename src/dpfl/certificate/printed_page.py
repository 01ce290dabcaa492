"""A certificate as one page of HTML, to read, print and sign by hand.

Only the signed JSON beside it is evidence.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from dpfl.certificate.certificate_view import CertificateView, audit_figure
from dpfl.certificate.contents import display_figure
from dpfl.certificate.figures import number
from dpfl.certificate.sections import AccountSection, Certificate

MOST_LISTED = 30
"""More accounts than this are counted by their epsilon instead of named."""
MOST_GROUPS = 12
MOST_KINDS = 6

STYLE = """
@page { size: A4; margin: 10mm 14mm }
* { box-sizing: border-box }
body { overflow-wrap: anywhere }
body { font: 9.2pt/1.38 "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; color: #1b2430; margin: 0 auto;
  max-width: 190mm; padding: 6mm 4mm; print-color-adjust: exact; -webkit-print-color-adjust: exact }
@media print { body { padding: 0; font-size: 8.7pt; line-height: 1.3 } }
header { display: flex; justify-content: space-between; align-items: flex-end; border-bottom: 1.6pt solid #1b2430;
  padding-bottom: 2.2mm }
h1 { font: 600 21pt/1.1 Georgia, "Liberation Serif", serif; margin: 0 }
header p { margin: 0; text-align: right; color: #55606e; font-size: 8.2pt }
h2 { font-size: 7.6pt; letter-spacing: .08em; text-transform: uppercase; color: #55606e; margin: 3mm 0 .8mm }
.headline { margin: 3.4mm 0 0; padding: 2.4mm 3.4mm; border-left: 1.6mm solid; font-size: 10pt }
.headline b { display: block; font-size: 12.5pt; letter-spacing: .01em }
.proven { background: #eaf4ee; border-color: #1d7a46 } .proven b { color: #155c34 }
.condition { background: #fdf4e0; border-color: #b87a09 } .condition b { color: #855604 }
.nothing { background: #fbe9e7; border-color: #b3261e }
.nothing b { color: #8c1d18; font-size: 15pt; text-transform: uppercase }
.figures { display: flex; gap: 3mm; margin-top: 3mm }
.figures div { flex: 1; border: .6pt solid #c5ccd5; padding: 1.8mm 2.6mm }
.figures strong { display: block; font: 600 17pt/1.15 Georgia, "Liberation Serif", serif; overflow-wrap: anywhere }
.figures span { color: #55606e; font-size: 7.8pt }
.columns { display: flex; gap: 7mm } .columns > * { flex: 1; min-width: 0 }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: baseline; padding: .4mm 2mm .4mm 0; border-bottom: .4pt solid #e1e5ea;
  font-weight: normal }
th { color: #55606e; white-space: nowrap; width: 1% }
td.number { text-align: right; white-space: nowrap; width: 1%; font-variant-numeric: tabular-nums }
ul { margin: 0; padding-left: 4mm } ul.loud { color: #8c1d18; font-weight: 600 }
.accounts { columns: 5; column-gap: 5mm; font-size: 8.2pt; font-variant-numeric: tabular-nums }
.accounts div { display: flex; justify-content: space-between; border-bottom: .4pt solid #e1e5ea; break-inside: avoid }
.hash { font: 7pt/1.3 "DejaVu Sans Mono", Menlo, Consolas, monospace; overflow-wrap: anywhere }
.sign { display: flex; gap: 8mm; margin-top: 10mm }
.sign div { flex: 1; border-top: .6pt solid #1b2430; padding-top: .8mm; font-size: 7.8pt; color: #55606e }
footer { margin-top: 2.6mm; color: #55606e; font-size: 7.6pt } code { white-space: nowrap }
"""  # noqa: E501


def page(certificate: Certificate, signature: str) -> str:
    """Lays out a certificate as a page that needs nothing from elsewhere.

    The same certificate gives the same bytes, so that verification can compare the page.

    Args:
        certificate: The contents.
        signature: Their signature, in hexadecimal digits.

    Returns:
        The HTML.
    """
    training, guarantee = certificate.trained, certificate.guarantee
    view = CertificateView.of(certificate)
    verdict = view.verdict
    parts = [
        f"<header><h1>Privacy certificate</h1><p>{escape(training.algorithm)} "
        f"({escape(training.variant)})<br>"
        f"run {escape(training.run)}<br>issued {escape(certificate.issued)}</p></header>",
        f'<p class="headline {verdict.level}"><b>{verdict.title}</b>{escape(verdict.sentence)}</p>',
        f'<div class="figures">{"".join(box(*figure) for figure in view.figures)}</div>',
        '<div class="columns"><section><h2>The '
        f"guarantee</h2>{_rows(view.guarantee)}</section>"
        f"<section><h2>What was trained</h2>{_rows(view.training)}</section></div>",
        f"<h2>What was released</h2>{_releases(certificate.accounts)}",
    ]
    if guarantee.unaccounted:
        parts.append(
            "<h2>Released without accounting</h2><ul "
            f'class="loud">{_items(guarantee.unaccounted)}</ul>'
        )
    parts += [
        f"<h2>Proven epsilon by account</h2>{_accounts(certificate)}",
        f"<h2>Assumptions</h2><ul>{_items(guarantee.assumptions)}</ul>",
        f"<h2>Reported by the run, not checked</h2>{_rows(view.reported)}",
        "<h2>Fingerprints (SHA-256) and "
        f"signature</h2>{_rows(_hashes(certificate, signature), 'hash')}",
        '<div class="sign"><div>Name and position</div><div>Date</div><div>Signature</div></div>',
        "<footer>This page shows the signed file beside it (.json). Only that file is evidence. "
        "To verify it and to compute every epsilon again: <code>dpfl verify certificate.json --run "
        "FOLDER --key SIGNER.pub</code></footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
        "<title>Privacy certificate "
        f"{escape(training.run)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def box(figure: str, label: str) -> str:
    """Lays out one of the large figures of the page.

    Args:
        figure: The figure.
        label: What it is.

    Returns:
        HTML.
    """
    return f"<div><strong>{escape(figure)}</strong><span>{escape(label)}</span></div>"


def audit_box(audit: Mapping[str, Any] | None) -> str:
    """Lays out what an audit measured.

    Args:
        audit: The audit as the certificate lists it; None without one.

    Returns:
        HTML.
    """
    return box(*audit_figure(audit))


def _rows(rows: Iterable[tuple[str, str]], kind: str = "") -> str:
    return (
        "<table>"
        + "".join(
            f'<tr><th>{escape(a)}</th><td class="{kind}">{escape(b)}</td></tr>' for a, b in rows
        )
        + "</table>"
    )


def _items(texts: Iterable[str]) -> str:
    return "".join(f"<li>{escape(text)}</li>" for text in texts)


def _releases(accounts: list[AccountSection]) -> str:
    """Lists the kinds of release, each with its largest count and the number of accounts that have
    it.
    """
    most: dict[str, int] = {}
    within: Counter[str] = Counter()
    for account in accounts:
        for release in account.releases:
            most[release.kind] = max(release.count, most.get(release.kind, 0))
            within[release.kind] += 1
    kinds = sorted(most, key=lambda kind: -most[kind])
    rows = [
        f'<tr><td>{escape(kind)}</td><td class="number">{most[kind]} ×</td>'
        f'<td class="number">in {within[kind]} of {len(accounts)} accounts</td></tr>'
        for kind in kinds[:MOST_KINDS]
    ]
    if len(kinds) > MOST_KINDS:
        rows.append(
            f"<tr><td>and {len(kinds) - MOST_KINDS} more kinds, listed in the signed file</td></tr>"
        )
    others = max(account.other_runs for account in accounts)
    if others:
        rows.append(
            f"<tr><td>The counts include releases of up to {others} other runs on the same "
            "ledgers.</td></tr>"
        )
    return f"<table>{''.join(rows) or '<tr><td>nothing</td></tr>'}</table>"


def _accounts(certificate: Certificate) -> str:
    guarantee = certificate.guarantee
    accounts = sorted(certificate.accounts, key=lambda account: -number(account.proven))
    figures = [
        display_figure(figure) for figure in (guarantee.lowest, guarantee.median, guarantee.proven)
    ]
    spread = "lowest {}, median {}, highest {}".format(*figures)
    if len(accounts) <= MOST_LISTED:
        pairs = [(account.name, display_figure(account.proven)) for account in certificate.accounts]
    else:
        counts = Counter(display_figure(account.proven) for account in accounts)
        pairs = [
            (f"{count} accounts", epsilon) for epsilon, count in list(counts.items())[:MOST_GROUPS]
        ]
        if len(counts) > MOST_GROUPS:
            pairs.append((f"{sum(list(counts.values())[MOST_GROUPS:])} accounts", "less"))
    cells = "".join(
        f"<div><span>{escape(name)}</span><span>{escape(epsilon)}</span></div>"
        for name, epsilon in pairs
    )
    return f'<div>{escape(spread)}</div><div class="accounts">{cells}</div>'


def _hashes(certificate: Certificate, signature: str) -> Iterable[tuple[str, str]]:
    labels = {
        "federation": "data (salted)",
        "experiment.toml": "experiment (salted)",
        "model.safetensors": "model file",
        "code": "code that trained",
    }
    for key, name in labels.items():
        yield name, certificate.hashes.get(key, "none")
    ledgers = "".join(account.seal for account in certificate.accounts)
    yield "ledgers (salted)", hashlib.sha256(ledgers.encode()).hexdigest()
    yield "signing key", certificate.signer.fingerprint.removeprefix("sha256:")
    yield "signature", signature
