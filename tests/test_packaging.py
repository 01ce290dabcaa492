"""The wheel and the sdist hold everything: the demo runs from them without the repository."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import dpfl
from tests.conftest import PATIENCE

pytestmark = pytest.mark.xdist_group("packages")  # they are built once

IMPORT_NAMES = {"mlflow_skinny": "mlflow"}
BROUGHT_BY_USERS = {"pandas"}
"""Modules for a table that only a user who has them asks for."""

ROOT = Path(__file__).parents[1]
DATA = ("dpfl/py.typed", "dpfl/data/mnist_sample.npz", "dpfl/web/static/index.html")


def _run(*command: str | Path, folder: Path) -> str:
    """Runs a command with nothing of the repository on its path."""
    process = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel that was built from the sdist, and that sdist."""
    folder = tmp_path_factory.mktemp("packages")
    # `build` makes the sdist, unpacks it elsewhere and builds the wheel from that alone.
    _run(
        sys.executable,
        *("-m", "build", "--no-isolation", "--outdir", folder, ROOT),
        folder=folder,
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def test_the_packages_hold_data_licence_and_both_import_packages(
    packages: tuple[Path, Path],
) -> None:
    wheel, sdist = packages
    assert wheel.name == f"dpfl-{dpfl.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert {*DATA, "dpfl_papers/command.py"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not any(name.startswith(("tests", "scripts", "benchmarks")) for name in names)
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", *(f"src/{name}" for name in DATA)} <= inside


def test_every_package_that_is_imported_is_a_dependency_or_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    names = {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in requirements}  # type: ignore[index]
    modules = names | {IMPORT_NAMES[name] for name in names & IMPORT_NAMES.keys()}
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module).partition(".")[0])
    ours = {"dpfl", "dpfl_papers", *sys.stdlib_module_names}
    assert imported - ours - modules == BROUGHT_BY_USERS


def test_the_demo_runs_from_the_wheel_in_a_clean_environment(
    packages: tuple[Path, Path], tmp_path: Path
) -> None:
    """The environment has the dependencies of this one, but not the repository."""
    environment, work = tmp_path / "environment", tmp_path / "work"
    work.mkdir()
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    (site,) = environment.glob("lib/python*/site-packages")
    # A path in a .pth file gives the packages there, but does not read the .pth files there: an
    # editable installation of dpfl stays invisible.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    _run(
        sys.executable,
        *("-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet"),
        packages[0],
        folder=work,
    )
    place = _run(python, "-c", "import dpfl, dpfl_papers; print(dpfl.__file__)", folder=work)
    assert Path(place.strip()).is_relative_to(environment)
    command = environment / "bin" / "dpfl"
    assert _run(command, "--version", folder=work).strip() == dpfl.__version__
    quick = ("--set", "budget.rounds=2", "--set", "model.name=linear")
    outcome = _run(command, "run", *quick, "--json", folder=work)
    assert json.loads(outcome)["rounds"] == 2
    assert "ali-2" in _run(command, "reproduce", "--help", folder=work) + _run(
        command, "reproduce", folder=work
    )
