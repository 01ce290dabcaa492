"""Public names and keywords of 0.1 that 0.2 renamed still work, with a warning."""

import importlib
import inspect
import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest

from dpfl import PrivateMetric, Result, codec
from dpfl.algorithms.options import noise_of
from dpfl.audit import AuditFinding, AuditReport
from dpfl.certificate import Verdict
from dpfl.client.descent.optimisers import SGD
from dpfl.client.task import LocalTraining
from dpfl.data import DataSource, Federation
from dpfl.deprecation import regroup_options
from dpfl.models import Layout
from dpfl.planning.tradeoff import Tradeoff
from dpfl.privacy import (
    All,
    FixedCohort,
    FixedSize,
    Flat,
    Gaussian,
    Ledger,
    Limit,
    NoClip,
    PerLayer,
    Poisson,
    PoissonSize,
    PrivacyStatement,
    PublicMedian,
    Quantile,
    Release,
    accountant,
    affordable,
)
from dpfl.privacy.accounting.events import gaussian
from dpfl.privacy.mechanisms.clips.clip import VectorClip
from dpfl.run.callbacks import Callback
from dpfl.secagg import MaskedInput, MaskedSum, SumMember, SurvivorVotes
from dpfl.server.algorithm import Algorithm
from dpfl.server.claim import Claim
from dpfl.server.steps.policy import FixedSteps
from dpfl.tasks import Binary, Counts, MultiClass, MultiLabel, NextToken, Ordinal, Regression

RENAMED = {
    "dpfl.audit": {
        "Finding": "AuditFinding",
        "Guesses": "GuessCounts",
        "Measured": "MeasuredEpsilon",
        "Report": "AuditReport",
    },
    "dpfl.algorithms": {"described": "as_algorithm"},
    "dpfl.errors": {"Diverged": "DivergenceError"},
    "dpfl.models": {"described": "as_model"},
    "dpfl.run.callbacks": {"Started": "RunStart"},
    "dpfl.run.metrics": {"History": "RunHistory", "Row": "RoundRow"},
    "dpfl.data": {
        "Closed": "CappedDirichlet",
        "Drawn": "RandomClients",
        "Mapping": "ExplicitPartition",
        "Source": "DataSource",
    },
    "dpfl.loggers": {"Started": "RunStart"},
    "dpfl.privacy": {"Refused": "BudgetRefusal"},
    "dpfl.secagg": {"Card": "KeyAdvertisement", "Member": "SumMember", "Sum": "MaskedSum"},
}


@pytest.mark.parametrize(
    ("package", "old"), [(package, old) for package, names in RENAMED.items() for old in names]
)
def test_an_old_name_gives_the_renamed_object_and_warns(package: str, old: str) -> None:
    module, new = importlib.import_module(package), RENAMED[package][old]
    with pytest.warns(DeprecationWarning, match=f"{package}.{new}"):
        assert getattr(module, old) is getattr(module, new)


MOVED = {
    "dpfl.audit.amplification.Played": "dpfl.audit.amplification.search.AmplificationTrial",
    "dpfl.data.dataset.Source": "dpfl.data.data_source.DataSource",
    "dpfl.planning.questions.PrivateMetric": "dpfl.planning.paid_queries.PrivateMetric",
    "dpfl.planning.tradeoff.plan": "dpfl.planning.plan.plan",
    "dpfl.privacy.budget.Budget": "dpfl.privacy.accounting.budget.Budget",
    "dpfl.privacy.events.gaussian": "dpfl.privacy.accounting.events.gaussian",
    "dpfl.privacy.ledger.Account": "dpfl.privacy.ledger.account.LedgerAccount",
    "dpfl.privacy.ledger.END": "dpfl.privacy.ledger.account.LAST_LINK",
    "dpfl.privacy.ledger.Ledger": "dpfl.privacy.Ledger",
    "dpfl.privacy.ledger.Refused": "dpfl.privacy.BudgetRefusal",
    "dpfl.privacy.ledger.refuse_kinds": "dpfl.privacy.ledger.account.check_same_kind",
    "dpfl.report.comparison.Comparison": "dpfl.views.comparison.Comparison",
    "dpfl.report.comparison.Runs": "dpfl.views.comparison.RunList",
    "dpfl.report.comparison.compare": "dpfl.views.comparison.compare",
    "dpfl.report.comparison.runs": "dpfl.views.comparison.runs",
    "dpfl.server.algorithm.Claim": "dpfl.server.claim.Claim",
    "dpfl.server.steps.Fixed": "dpfl.server.steps.policy.FixedSteps",
}


def load(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("old", MOVED)
def test_a_path_that_was_published_still_leads_there_and_warns(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]};"):
        assert load(old) is load(MOVED[old])


def test_result_is_still_where_training_is() -> None:
    assert load("dpfl.run.train.Result") is load("dpfl.run.result.Result")


GAUSSIAN = Gaussian(2.0)
RELEASE = Release(Poisson(0.5), Flat(1.0), GAUSSIAN)
ALGORITHM = Algorithm("a", LocalTraining(SGD(0.1)), FixedSteps(1), samples=RELEASE)

STATEMENT = PrivacyStatement("sample", "add/remove one", 1e-5, "server", "pld", 2.0, None)

KEYWORDS: list[tuple[Callable[..., object], str, str, object]] = [
    (Flat, "level", "clip_norm", 2.0),
    (NoClip, "level", "clip_norm", 3.0),
    (PerLayer, "level", "clip_norm", 2.0),
    (PublicMedian, "level", "clip_norm", 2.0),
    (Quantile, "level", "clip_norm", 2.0),
    (Gaussian, "multiplier", "noise_multiplier", 2.0),
    (RELEASE.with_noise, "multiplier", "noise_multiplier", 2.0),
    (Release, "realised", "divide_by_drawn", True),
    (Release, "sums", "noise_shares", None),
    (partial(Algorithm, "a", ALGORITHM.local, ALGORITHM.steps), "uploads", "updates", None),
    (partial(Algorithm, "a", ALGORITHM.local, ALGORITHM.steps), "one", "sample_unit", "person"),
    (partial(Claim("RDP", "rdp").epsilon, delta=1e-5), "stated", "events", {gaussian(4.0): 1}),
    (noise_of, "multiplier", "noise_multiplier", 2.0),
    (lambda **words: Counts().labels(**words).tolist(), "given", "values", np.array([1.0, 2.0])),
    (PrivacyStatement.from_dict, "told", "content", STATEMENT.to_dict()),
    (Limit(8.0, 1e-5).covers, "spent", "events", {gaussian(4.0): 1}),
    (partial(Limit(8.0, 1e-5).allows, event=gaussian(4.0), count=1), "spent", "events", {}),
    (partial(Limit(8.0, 1e-5).remaining, event=gaussian(4.0)), "spent", "events", {}),
    (partial(accountant("rdp").epsilon, delta=1e-5), "spent", "events", {gaussian(4.0): 1}),
    (
        partial(affordable, event=gaussian(4.0), epsilon=2.0, delta=1e-5, by=accountant("rdp")),
        "spent",
        "events",
        {},
    ),
]


@pytest.mark.parametrize(("call", "old", "new", "value"), KEYWORDS)
def test_an_old_keyword_means_the_new_one_and_warns(
    call: Callable[..., object], old: str, new: str, value: object
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = call(**{new: value})
    with pytest.warns(DeprecationWarning, match=rf"{old}=\.\.\.\) is now .*{new}=\.\.\."):
        assert call(**{old: value}) == expected
    with pytest.raises(TypeError, match=f"both {old} and {new}"):
        call(**{old: value, new: value})


SAMPLING = {
    "counts": "depends_on_population",
    "expected": "expected_size",
    "hidden": "needs_secrecy",
    "known": "allows_self_knowledge",
    "largest_share": "max_share",
    "least": "min_population",
}
ATTRIBUTES: dict[type, dict[str, str]] = {
    Flat: {"level": "clip_norm"},
    NoClip: {"level": "clip_norm"},
    PerLayer: {"level": "clip_norm"},
    PublicMedian: {"level": "clip_norm"},
    Quantile: {"level": "clip_norm"},
    Gaussian: {"multiplier": "noise_multiplier"},
    Release: {
        "added": "local_stddev",
        "carrying": "add_precomputed_noise",
        "deviation": "stddev",
        "divides_by": "divisor_for",
        "fitted": "for_model",
        "multiplier": "noise_multiplier",
        "noised": "add_noise",
        "noised_count": "add_noise_to_count",
        "noised_number": "add_noise_to_number",
        "of_slopes": "for_slopes",
        "over": "for_rounds",
        "private": "has_noise",
        "planned": "uncalibrated",
        "realised": "divide_by_drawn",
        "secured": "with_secure_noise",
        "sums": "noise_shares",
        "whole_sum": "integer_sum",
    },
    All: SAMPLING,
    FixedCohort: SAMPLING,
    FixedSize: SAMPLING,
    Poisson: SAMPLING,
    PoissonSize: SAMPLING,
    Algorithm: {
        "before": "query_spending",
        "kept": "client_state",
        "stated": "stated_spending",
        "policy": "disclosure_rules",
        "questions": "queries",
        "fitted": "for_model",
        "of_size": "for_client_size",
        "one": "sample_unit",
        "over": "for_rounds",
        "own_accounts": "ledger_per_client",
        "protecting": "for_unit",
        "scale": "placement",
        "secured": "with_secure_noise",
        "summed": "with_secure_sums",
        "sums": "noise_shares",
        "uploads": "updates",
    },
    Ledger: {
        "counts": "counts_data",
        "holds": "contains",
        "limits_since_the_first_debit": "limits_since_first_debit",
        "made_before": "attempts_before",
        "note": "write_once",
        "paid_for": "has_release",
        "refuse_other": "check_account",
        "spent": "spending",
        "spent_and_besides": "spending_with_others",
        "spent_of": "spending_within",
        "spent_until": "spending_until",
    },
    Binary: {"shown": "live_metrics"},
    Counts: {"shown": "live_metrics"},
    MultiClass: {"shown": "live_metrics"},
    MultiLabel: {"shown": "live_metrics"},
    NextToken: {"shown": "live_metrics"},
    Ordinal: {"shown": "live_metrics"},
    Regression: {"shown": "live_metrics"},
    Federation: {
        "counted": "count_units",
        "holding": "pooled_digest",
        "holdings": "client_digests",
        "public_holdings": "public_client_digests",
    },
    Layout: {"paid": "paid_scales"},
    PrivateMetric: {"survey": "query"},
    VectorClip: {"clipped": "clip_rows"},
    Tradeoff: {"bought": "iterations_by_accountant", "recommended": "recommendation"},
    PrivacyStatement: {"asked": "queries", "questions": "queries"},
    AuditReport: {"played": "games_played"},
    DataSource: {"owned": "rows_by_owner"},
    MaskedInput: {"at": "sum_id"},
    SumMember: {"meet": "receive_keys"},
    MaskedSum: {"shown": "survivor_lists"},
    SurvivorVotes: {"at": "sum_id"},
    Callback: {"started": "on_start", "round": "on_round"},
    Verdict: {"unchecked": "not_checked"},
    Result: {"lost": "lost_replies"},
    AuditFinding: {"shown": "display_value"},
}
EXAMPLES = {
    Flat: Flat(2.0),
    Gaussian: GAUSSIAN,
    Release: RELEASE,
    Poisson: Poisson(0.5),
    Algorithm: ALGORITHM,
    Binary: Binary(),
    PrivateMetric: PrivateMetric(),
    Layout: Layout((), (), (0,), 0, 0),
}


class Stub:
    """Has every attribute, each equal to its name."""

    def __getattr__(self, name: str) -> str:
        return name


@pytest.mark.parametrize(
    ("owner", "old"), [(owner, old) for owner, names in ATTRIBUTES.items() for old in names]
)
def test_an_old_attribute_reads_the_new_one_and_warns(owner: type, old: str) -> None:
    new = ATTRIBUTES[owner][old]
    instance = EXAMPLES.get(owner)
    if instance is None:
        descriptor = inspect.getattr_static(owner, old)
        with pytest.warns(DeprecationWarning, match=rf"\.{old} is now \w+\.{new};"):
            assert descriptor.__get__(Stub(), owner) == new
        assert new in {*dir(owner), *getattr(owner, "__annotations__", ())}
    else:
        with pytest.warns(DeprecationWarning, match=rf"\.{old} is now \w+\.{new};"):
            assert getattr(instance, old) == getattr(instance, new)


@pytest.mark.parametrize("instance", [Flat(2.0), GAUSSIAN, RELEASE, ALGORITHM])
def test_a_part_with_old_names_is_written_and_compared_as_before(instance: Any) -> None:
    names = {field.name for field in fields(instance)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy = pickle.loads(pickle.dumps(instance))
        assert copy == instance
        assert hash(copy) == hash(instance)
        assert repr(copy) == repr(instance)
        assert replace(instance) == instance
        assert codec.encode(copy) == codec.encode(instance)
    assert not names & set(ATTRIBUTES[type(instance)])
    assert list(signature(type(instance)).parameters) == [
        field.name for field in fields(instance) if field.init
    ]


@pytest.mark.parametrize("package", RENAMED)
def test_a_name_that_never_was_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = importlib.import_module(package).no_such_name


@dataclass(frozen=True)
class Group:
    size: int = 0
    rate: float = 0.0


def regroup(group: Group | None = None, **old: object) -> Group | None:
    names = Group.__match_args__
    (result,) = regroup_options("f", old, {"group": (group, Group, names)})
    return result


def test_old_keywords_build_the_group_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"f\(size=\.\.\.\) is now f\(group=\.\.\.\)"):
        assert regroup(size=3) == Group(3)
    assert regroup(Group(4)) == Group(4)
    assert regroup() is None


def test_a_keyword_that_never_was_and_one_beside_its_group_are_type_errors() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'sise'"):
        regroup(sise=3)
    with pytest.raises(TypeError, match="both group and size"):
        regroup(Group(4), size=3)


OLD_USES: dict[str, Callable[[], object]] = {
    "an attribute": lambda: Flat(2.0).level,
    "a keyword": lambda: Flat(level=2.0),
    "a method": lambda: type("Old", (Callback,), {"started": lambda self, run: None}),
    "a name": lambda: load("dpfl.errors.Diverged"),
}


@pytest.mark.parametrize("use", OLD_USES.values(), ids=OLD_USES)
def test_a_warning_points_at_the_line_that_uses_the_old_name(use: Callable[[], object]) -> None:
    """Python shows a `DeprecationWarning` only where that line is in a user's own script."""
    with pytest.warns(DeprecationWarning, match="the old name goes in version") as record:
        use()
    assert {warning.filename for warning in record} == {__file__}
