"""Public names and keywords of 0.1 that 0.2 renamed still work, with a warning."""

import importlib
from dataclasses import dataclass

import pytest

from dpfl.deprecation import regroup_options

RENAMED = {
    "dpfl.audit": {
        "Finding": "AuditFinding",
        "Guesses": "GuessCounts",
        "Measured": "MeasuredEpsilon",
        "Report": "AuditReport",
    },
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
def test_an_old_name_gives_the_renamed_class_and_warns(package: str, old: str) -> None:
    module, new = importlib.import_module(package), RENAMED[package][old]
    with pytest.warns(DeprecationWarning, match=f"{package}.{new}"):
        assert getattr(module, old) is getattr(module, new)


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
