"""An experiment names its loggers, and is refused where one cannot write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dpfl.config.experiment import parse
from dpfl.errors import DpflError
from dpfl.loggers import MLflow, TensorBoard, from_words


def test_an_experiment_names_its_loggers() -> None:
    assert from_words({}) == []
    with pytest.raises(DpflError, match="no logger 'tensorbord'; did you mean 'tensorboard'"):
        from_words(parse({"log": {"tensorbord": "x"}}).log)
    with pytest.raises(DpflError, match="a local file"):
        from_words({"mlflow": "http://127.0.0.1:5000"})


def test_a_place_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for log in (
        {"tensorboard": str(tmp_path / "file")},
        {"mlflow": str(tmp_path / "file" / "x.db")},
    ):
        with pytest.raises(DpflError, match="choose another place"):
            from_words(log)


def test_an_experiment_that_names_a_logger_writes_there(tmp_path: Path) -> None:
    settings = {
        "model": {"name": "linear"},
        "algorithm": {"name": "fedavg"},
        "budget": {"rounds": 1},
    }
    parse(settings | {"log": {"tensorboard": str(tmp_path / "boards")}}).run(
        tmp_path / "run", workers=1
    )
    assert list((tmp_path / "boards" / "run").iterdir())


@pytest.mark.parametrize(
    ("logger", "package"), [(TensorBoard, "torch.utils.tensorboard"), (MLflow, "mlflow.tracking")]
)
def test_a_logger_that_is_not_installed_says_how_to_get_it(
    logger: type, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(DpflError, match=f"{logger.__name__} is not installed: pip install"):
        logger()
