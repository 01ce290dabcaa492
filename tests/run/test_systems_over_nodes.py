"""Every sound system over nodes: it runs, or is refused with a reason; docs/deployment.md has the
table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfl import algorithms
from dpfl.client.noise_placement import NoisePlacement
from dpfl.config.experiment import parse
from dpfl.errors import DpflError
from dpfl.privacy import FixedSize
from tests.loopback import federation

DOCS = Path(__file__).parents[2] / "docs" / "deployment.md"


def asked(name: str) -> dict:
    """What its nodes must agree to, by where its noise is."""
    made = algorithms.from_name(name)
    tell = {
        "trusted": made.placement is NoisePlacement.ROUND_SUM,
        "bare": made.placement is NoisePlacement.NONE,
        "secure": False,
    }
    neighbours = made.release.neighbours if made.release else "add/remove one"
    unit = made.unit if made.ledger_per_client else "sample"
    return {
        "tell": tell,
        "limits": {"unit": unit, "neighbours": neighbours, "epsilon": 1e6, "accountant": "rdp"},
    }


def outcome(name: str, folder: Path) -> str:
    experiment = parse(
        {
            "data": {"name": "mnist-sample", "partition": "iid", "clients": 3},
            "model": {"name": "mlp", "hidden": 4},
            "algorithm": {"name": name},
            "budget": {"epsilon": 8.0, "rounds": 1}
            if algorithms.from_name(name).unit != "none"
            else {"rounds": 1},
            "privacy": {"accountant": "rdp", "noise": "plain"}
            if algorithms.from_name(name).unit != "none"
            else {},
        }
    )
    try:
        transport, terms = federation(folder / "nodes", experiment, **asked(name))
        result = experiment.serve(transport, terms, folder / "run")
    except DpflError as error:
        return f"refused: {error}"
    return (
        "runs"
        if result.rounds == 1 and not result.lost_replies
        else f"lost: {result.lost_replies[0]}"
    )


def needs(name: str) -> str:
    """What the nodes' policies must say for it, beside their limits."""
    made, said = algorithms.from_name(name), []
    if made.placement is NoisePlacement.ROUND_SUM:
        said.append("`tell.trusted`: the noise is the server's")
    if made.placement is NoisePlacement.NONE:
        said.append("`tell.bare`: there is no noise")
    if made.ledger_per_client and made.unit == "client":
        said.append('`limits.unit = "client"`')
    if made.ledger_per_client and made.release and made.release.neighbours != "add/remove one":
        said.append(f'`limits.neighbours = "{made.release.neighbours}"`')
    if made.ledger_per_client and made.samples and isinstance(made.samples.sampling, FixedSize):
        said.append('`tell.size = "exact"`: its batches have a fixed size')
    if made.ledger_per_client:
        try:
            made.with_noise(1.0).with_secure_noise()
        except DpflError as error:
            said.append(f"`tell.secure = false`: {str(error).split(';')[0].lower()}")
    return "; ".join(said) or "nothing more"


@pytest.mark.parametrize("name", list(algorithms.ALGORITHMS))
def test_the_table_says_what_happens(name: str, tmp_path: Path) -> None:
    assert (
        f"| `{name}` | {outcome(name, tmp_path)} | {needs(name)} |" in DOCS.read_text().splitlines()
    )


def test_the_table_has_no_other_system() -> None:
    listed = [
        line.split("`")[1]
        for line in DOCS.read_text().splitlines()
        if line.startswith("| `") and "| runs |" in line
    ]
    assert listed == list(algorithms.ALGORITHMS)
