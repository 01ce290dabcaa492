"""The words of a table are keys of [data] in an experiment, each once."""

import dataclasses

from dpfl.data.partition import NAMES
from dpfl.data.special_names import LEAF_WORDS, ROLES, TABLE_WORDS, TABLES


def test_no_word_of_a_table_is_one_of_its_partition() -> None:
    """Both stand in [data]: a word with two meanings would go to the table alone."""
    words = {*TABLE_WORDS, *LEAF_WORDS}
    assert len(set(TABLE_WORDS)) == len(TABLE_WORDS)
    assert set(ROLES) <= set(TABLE_WORDS)
    options = {field.name for kind in NAMES.values() for field in dataclasses.fields(kind)}
    assert not words & options


def test_a_table_is_known_by_its_ending_in_small_letters() -> None:
    assert all(ending.startswith(".") and ending == ending.lower() for ending in TABLES)
