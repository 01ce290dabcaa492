"""A certificate made by hand, for borders that whole runs do not reach."""

from __future__ import annotations

from typing import Any

from dpfl.certificate import contents
from dpfl.certificate.figures import stated_figure
from dpfl.certificate.sections import (
    AccountSection,
    Certificate,
    ClaimSection,
    GuaranteeSection,
    ReleaseSection,
    ReportedSection,
    Signer,
    TrainingSection,
)
from dpfl.privacy import accountant
from dpfl.privacy.accounting.events import describe, encode, gaussian
from dpfl.run.records.digests import code_sha256

DELTA = 1e-5


EVENT = gaussian(2.0)


EPSILON = stated_figure(accountant("rdp").epsilon({EVENT: 3}, DELTA))


def account(**changes: Any) -> AccountSection:
    released = ReleaseSection(event=encode(EVENT), kind=describe(EVENT), count=3)
    usual: dict[str, Any] = {
        "name": "a",
        "ledger": "a.sqlite",
        "proven": EPSILON,
        "releases": [released],
        "debits": 3,
        "other_runs": 0,
        "seal": "",
    }
    return AccountSection(**usual | changes)


def certificate(
    guarantee: dict[str, Any] | None = None, claimed: dict[str, Any] | None = None, **changes: Any
) -> Certificate:
    trained = TrainingSection(
        run="r",
        algorithm="a",
        variant="sound",
        model="m",
        clients=1,
        partition="iid",
        entropy="system",
        noise="secure",
        budget=None,
        rounds=1,
        iterations=3,
    )
    stated: dict[str, Any] = {
        "unit": "sample",
        "neighbours": "add/remove one",
        "delta": DELTA,
        "adversary": "",
        "accountant": "rdp",
        "proven": EPSILON,
        "median": EPSILON,
        "lowest": EPSILON,
        "used": EPSILON,
        "unaccounted": [],
        "assumptions": [],
        "warnings": [],
    }
    paper: dict[str, Any] = {"epsilon": None, "text": "nothing", "accountant": None, "stated": {}}
    words: dict[str, Any] = {
        "format": "dpfl certificate 2",
        "issued": "2030-01-01T00:00:00+00:00",
        "trained": trained,
        "accounts": [account()],
        "guarantee": GuaranteeSection(**stated | (guarantee or {})),
        "claimed": ClaimSection(**paper | (claimed or {})),
        "reported": ReportedSection(started="", accuracy=None, stopped_by="", audit=None),
        "hashes": {},
        "versions": {},
        "certified_by": {"dpfl": contents.version(), "code": code_sha256()},
        "signer": Signer(public_key="", fingerprint=""),
    }
    return Certificate(**words | changes)
