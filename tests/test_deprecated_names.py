"""Public names of 0.1 that 0.2 renamed still work, with a warning."""

import importlib

import pytest

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
