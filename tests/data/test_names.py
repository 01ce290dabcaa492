"""Names of clients are names of files: short, plain, and different where a disk ignores case."""

import pytest

from dpfl.data.names import checked_names, client_names, names_of_sites
from dpfl.errors import DpflError


def test_default_names_sort_as_the_clients_do() -> None:
    names = client_names(11)
    assert (names[0], names[10]) == ("client-00000", "client-00010")
    assert sorted(names) == list(names)


def test_sites_keep_their_names_as_far_as_files_can_have_them() -> None:
    assert names_of_sites(["Basel", "St. Gallen"]) == ("Basel", "St._Gallen")
    assert names_of_sites(["a b", "a/b"]) == (), "both would be a_b"
    assert names_of_sites(["Federation", "other"]) == (), "a file of the run has this name"
    assert names_of_sites(["..", "x"]) == ()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a"], "1 names were given for 2 clients"),
        ("ab", "names were given"),
        (["a", "../b"], "cannot be a client's name"),
        (["a", "x" * 65], "cannot be a client's name"),
        (["a", "A"], "'a' is taken"),
        (["a", "Metrics"], "'metrics' is taken"),
    ],
)
def test_names_that_files_cannot_have_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(DpflError, match=message):
        checked_names(names, 2)
    assert checked_names(["a", "b-1.x"], 2) == ("a", "b-1.x")
