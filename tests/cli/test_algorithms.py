"""`dpfl algorithms`: every system with what is proven of it, in words and as JSON."""

import json

import pytest
from typer.testing import CliRunner

from dpfl.algorithms import ALGORITHMS, options_of
from dpfl.cli.app import app


def ask(*words: str) -> str:
    done = CliRunner().invoke(app, ["algorithms", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_list_holds_every_system_with_unit_variants_paper_and_what_is_proven() -> None:
    systems = {system["name"]: system for system in json.loads(ask("--json"))}
    assert set(systems) == set(ALGORITHMS)
    for name, system in systems.items():
        assert system["unit"] in ("sample", "client", "none")
        assert system["variants"] == (
            ["sound", "published"] if "variant" in options_of(name) else ["sound"]
        )
        assert set(system["proven"]) == set(system["variants"])
        assert system["paper"]
        if "published" in system["variants"]:
            assert system["proven"]["published"].startswith(
                ("nothing: it releases", "far less than it claims", "less than it claims")
            )
        expected = (
            "nothing: no noise" if system["unit"] == "none" else f"epsilon for one {system['unit']}"
        )
        assert system["proven"]["sound"].startswith(expected)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_system_shows_its_text_options_and_parts(name: str) -> None:
    system = json.loads(ask(name, "--json"))
    assert set(system["options"]) == set(options_of(name))
    assert {"local", "steps", "clients", "weights", "server"} <= set(system["parts"])
    assert name in ask(name)


def test_the_table_is_for_people() -> None:
    printed = ask()
    assert "ali-dpfl" in printed
    assert "published" in printed


def test_a_name_that_is_not_there_is_answered_with_the_nearest() -> None:
    done = CliRunner().invoke(app, ["algorithms", "ali-dpf"])
    assert "did you mean 'ali-dpfl'" in str(done.exception)
