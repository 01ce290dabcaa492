"""The old path of `gaussian`."""

import pytest

from dpfl.privacy.accounting.events import gaussian


def test_the_old_path_leads_to_the_event() -> None:
    with pytest.warns(DeprecationWarning, match="privacy.accounting.events.gaussian"):
        from dpfl.privacy.events import gaussian as old_gaussian
    assert old_gaussian is gaussian
