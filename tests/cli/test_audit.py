"""`dpfl audit` on a system, an experiment and a run, for people and as JSON."""

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpfl.cli.app import app
from dpfl.config.experiment import parse
from dpfl.privacy.mechanisms.noises import secure_noise
from dpfl.run.records.folder import RunFolder
from tests.run.test_tables import content, write

TRIALS = 2000
QUICK = ["--quiet", "--trials", str(TRIALS)]
EXPERIMENT = """
[data]
name = "mnist-sample"
partition = "iid"
clients = 4
[model]
name = "mlp"
hidden = 8
[algorithm]
name = "fedavg-dp"
[budget]
epsilon = 4.0
delta = 1e-5
rounds = 2
"""


def ask(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["audit", *words])
    assert done.exit_code == code, done.output
    return done.output


def told(*words: str, trials: int = TRIALS) -> dict:
    return json.loads(ask(*words, *QUICK, "--trials", str(trials), "--json"))


def test_the_published_wavelets_are_refuted_and_the_sound_ones_consistent() -> None:
    games = ["--game", "one release", "--game", "leaks"]
    published = told("dp-sgd-wav", "--variant", "published", *games)
    assert published["verdict"] == "refuted"
    assert published["measured"] > published["claimed"]
    sound = told("dp-sgd-wav", "--variant", "sound", *games)
    assert sound["verdict"] == "consistent"
    assert sound["measured"] <= sound["proven"]


@pytest.mark.parametrize("name", ["ali-dpfl", "als-dpfl", "hw-dpfl"])
def test_the_leak_of_a_published_system_is_shown_and_the_sound_one_has_none(name: str) -> None:
    published = told(name, "--variant", "published", "--game", "leaks")
    assert (published["verdict"], published["measured"], published["proven"]) == (
        "refuted",
        "unbounded",
        "unbounded",
    )
    assert "against" in published["why"]
    assert told(name, "--game", "leaks")["verdict"] == "consistent"


def test_people_get_a_table_and_a_sentence() -> None:
    printed = ask(
        "ali-dpfl", "--variant", "published", "--game", "leaks", "--game", "canary clients", *QUICK
    )
    assert "no epsilon holds" in printed
    assert "tau (round 2)" in printed
    assert "canary clients: does not apply" in printed
    assert "played: leaks" in printed.replace("\n", " ")
    assert "not asked for: one release" in printed.replace("\n", " ")


def test_too_little_is_exit_code_1() -> None:
    printed = ask("dp-fedavg", "--game", "masks", "--game", "whole run", *QUICK, code=1)
    assert "not enough was tested" in printed
    found = json.loads(ask("dp-fedavg", "--game", "masks", *QUICK, "--json", code=1))
    assert (found["verdict"], found["played"], found["does_not_apply"]) == (
        "not enough was tested",
        [],
        ["masks"],
    )


def test_an_experiment_is_audited_with_the_noise_that_its_budget_plans(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)
    found = told(str(file), "--game", "one release")
    assert found["verdict"] == "consistent"
    assert 0.3 < found["noise_multiplier"] < 1.0


def test_an_experiment_whose_noise_is_planned_over_all_rounds_is_audited(tmp_path: Path) -> None:
    file = tmp_path / "experiment.toml"
    for name in ("dyn-dp-sgd", "dp-ftrl"):
        file.write_text(EXPERIMENT.replace("fedavg-dp", name).replace("rounds = 2", "rounds = 3"))
        assert told(str(file), "--game", "leaks")["verdict"] == "consistent"


def ran(tmp_path: Path, extra: str = "") -> Path:
    file, run = tmp_path / "experiment.toml", tmp_path / "run"
    file.write_text(EXPERIMENT + extra)
    CliRunner().invoke(
        app,
        ["run", str(file), "--out", str(run), "--quiet", "--workers", "1"],
        catch_exceptions=False,
    )
    return run


def test_a_run_is_audited_with_its_own_model_and_what_it_shows_of_training_samples_stays_private(
    tmp_path: Path,
) -> None:
    run = ran(tmp_path)
    found = told(str(run), "--game", "leaks")
    assert json.loads((run / "audit.json").read_text()) == found, "kept for the certificate"
    assert "true positives" not in json.dumps(found)
    own = json.loads((run / "audit-private.json").read_text())
    assert (run / "audit-private.json").stat().st_mode & 0o777 == 0o600
    assert own["game"] == "membership of the run"
    assert "true positives" in own["detail"]
    assert own["proven"] <= 4.0
    assert "no ledger has paid for" in own["private"]
    printed = ask(str(run), "--game", "leaks", *QUICK)
    assert "true positives" not in printed
    assert "--private shows them" in printed.replace("\n", " ")
    assert told(str(run), "--game", "leaks", "--private")["games"][-1]["detail"] == own["detail"], (
        "asked for"
    )
    assert "true positives" not in (run / "audit.json").read_text()


def test_a_run_is_audited_with_its_own_kind_of_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ran(tmp_path, '[privacy]\nentropy = "system"\n')
    found = told(str(run), "--game", "noise", "--game", "one release")
    assert (found["noise"], found["verdict"]) == ("secure", "consistent")
    honest = secure_noise.standard_normal
    monkeypatch.setattr(secure_noise, "standard_normal", lambda bits: honest(bits) / 2)
    broken = json.loads(
        ask(str(run), "--game", "noise", "--game", "one release", *QUICK, "--json", code=1)
    )
    assert [game["verdict"] for game in broken["games"]] == ["broken", "broken"]


@pytest.mark.parametrize("tested", [True, False])
def test_a_run_on_a_table_is_audited_with_all_that_its_clients_were_asked(
    tmp_path: Path, tested: bool
) -> None:
    """One score for two labels, persons, paid scales; and a paid metric in the place of a test
    set.
    """
    columns = {
        "age": {"low": 0, "high": 200, "scale": "paid"},
        "sex": {"levels": ["f", "m"], "other": True},
    }
    said = content(
        write(tmp_path / "stays.csv"), columns=columns, test={"share": 0.2} if tested else None
    )
    said |= {"algorithm": {"name": "fedavg-dp", "tau": 1}, "budget": {"epsilon": 2.0, "rounds": 2}}
    said |= {"privacy": {"unit": "person"}, "metrics": {"private": not tested}}
    result = parse(said).run(out=tmp_path / "run", workers=1)
    found = told(str(result.folder), "--game", "query", "--private", trials=500)
    made = RunFolder.open(result.folder).experiment()["resolved"]["algorithm"]
    assert found["noise_multiplier"] == pytest.approx(made["samples"]["noise"]["noise_multiplier"])
    assert [game["verdict"] for game in found["games"]] == [
        "consistent",
        "estimate" if tested else "not testable",
    ]
    assert found["unit"] == "person"


def test_an_experiment_and_a_run_with_secure_sums_are_audited_by_what_a_server_sees_of_sums(
    tmp_path: Path,
) -> None:
    file = tmp_path / "experiment.toml"
    sums = '[privacy]\naggregation = "secure"\nsurvivors = 3\n'
    file.write_text(EXPERIMENT.replace('name = "fedavg-dp"', 'name = "auto"') + sums)
    games = ["--game", "one release", "--game", "query", "--game", "noise", "--game", "masks"]
    found = told(str(file), *games)
    assert (found["verdict"], found["noise"]) == ("consistent", "shared")
    assert [game["verdict"] for game in found["games"]] == ["consistent"] * 4
    folder = parse(tomllib.loads(file.read_text())).run(out=tmp_path / "run", workers=1).folder
    assert told(str(folder), "--game", "masks")["verdict"] == "consistent"


def test_a_run_that_is_not_finished_is_not_audited(tmp_path: Path) -> None:
    run = ran(tmp_path)
    (run / "statement.json").unlink()
    done = CliRunner().invoke(app, ["audit", str(run)])
    assert "is not finished" in str(done.exception)


def test_pictures_go_where_they_are_asked_to(tmp_path: Path) -> None:
    ask("fedavg-dp", "--game", "inversion", "--out", str(tmp_path / "pictures"), *QUICK)
    assert [file.name for file in (tmp_path / "pictures").iterdir()] == [
        "fedavg-dp-sound-inversion.png"
    ]


def test_mistakes_are_answered_with_what_to_do() -> None:
    for words, answer in (
        (["fedavg-pd"], "did you mean 'fedavg-dp'"),
        (["fedavg-dp", "--variant", "published"], "has no variants"),
        (["none.toml"], "no experiment file"),
    ):
        done = CliRunner().invoke(app, ["audit", *words])
        assert answer in str(done.exception)
