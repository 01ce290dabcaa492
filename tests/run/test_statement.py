"""What a statement says of the run behind it."""

from dpfl.data import Federation
from tests.run.small_runs import (
    SOUND,
    Train,
)


def test_keyed_randomness_is_named_among_the_assumptions_and_its_seed_is_not(
    train: Train, federation: Federation
) -> None:
    """Printed, the seed would void the condition that the statement names."""
    result = train(federation, SOUND, rounds=1, seed=918273645)
    assert any(
        "the seed" in assumption and "system" in assumption
        for assumption in result.privacy.assumptions
    )
    files = [result.folder / name for name in ("statement.json", "result.json", "README.md")]
    assert not any(
        "918273645" in text for text in (str(result.privacy), *(file.read_text() for file in files))
    )
