"""Names of lines in a legend."""

from dpfl.views.run_lines import LONGEST, shorten


def test_a_long_name_keeps_both_of_its_ends() -> None:
    name = "first" + "-" * 100 + "last"
    short = shorten(name)
    assert len(short) <= LONGEST
    assert short.startswith("first")
    assert short.endswith("last")
    assert shorten("short") == "short"
