"""What README and docs print is so: Python and commands run as printed, in fewer rounds, and links
lead to what is there.
"""

from __future__ import annotations

import os
import pydoc
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.reference import commands
from scripts.site import extra_pages, with_site_links
from typer.testing import CliRunner

from dpfl.algorithms import ALGORITHMS
from dpfl.cli.app import app, load_command
from dpfl.config.experiment import DEMO, load, parse

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
    )
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
QUICK = shlex.split("--set budget.rounds=2 --set model.name=linear --workers 1 --quiet")
TESTED_ELSEWHERE = {
    "docs/adding-a-system.md": "tests/algorithms/test_adding_a_system.py",
    "docs/models.md": "tests_hf/test_hugging_face.py",
}
"""Python that needs the repository, or an environment of its own; these tests read the page, or
make its calls.
"""
CALLS = re.compile(r"(?:hugging_face|load_state_dict)\(.*?\)(?:,\s*strict=False\s*\))?", re.DOTALL)
DRAWN = {"docs/architecture.md"}
"""Python that shows the loop, which has no beginning there."""
OTHER_WORDS = {"$EDITOR", "cp", "mkdir"}
ONLY_READ = {
    r"audit ": "games take minutes; tests/audit plays them",
    r"data get ": "it downloads; tests/data/sources/test_download.py does, from this machine",
    r"ledger reconcile ": "it needs a node; tests/node/history/test_rollback.py and "
    "tests/transports/flower/test_daemon.py have some",
    r"node ": "it needs the key that a server printed, and a policy that somebody edited; "
    "tests/cli/test_node.py has both",
    r"reproduce \S": "a table takes hours; tests/dpfl_papers runs cells of it",
    r"run examples/": "they need data that must be downloaded; test_the_examples_are_valid reads "
    "them",
    r"server (?!init)": "it waits for nodes; tests/run/over_nodes/test_nodes.py, tests/transports "
    "have some",
    r"up ": "it starts five processes; tests/transports/flower/test_local_federation.py does",
    r"(certify|verify) run\b": "it needs a run over nodes, and what they signed; "
    "tests/run/over_nodes/test_nodes.py has both",
}
"""Commands in plain blocks that are read with all of their options, and not begun: by how they
begin, why.
"""


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str, *languages: str) -> list[str]:
    return [body for language, body in BLOCK.findall(text_of(page)) if language in languages]


def having(*languages: str) -> list[str]:
    return [page for page in PAGES if blocks(page, *languages)]


def command_lines(body: str) -> Iterator[list[str]]:
    for line in body.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        if words:
            yield words


# Code


@pytest.mark.parametrize(
    "page", [page for page in having("python") if page not in {*TESTED_ELSEWHERE, *DRAWN}]
)
def test_python_runs_as_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page one after another, as somebody reads it; training in two rounds."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for number, body in enumerate(blocks(page, "python")):
        quick = re.sub(r"(Budget\([^)]*rounds=)\d+", r"\g<1>2", body).replace(
            "in (0, 1, 2)", "in (0, 1)"
        )
        exec(compile(quick, f"{page}, block {number}", "exec"), names)


@pytest.mark.parametrize(("page", "test"), TESTED_ELSEWHERE.items())
def test_other_python_is_run_by_tests_of_its_own(page: str, test: str) -> None:
    tests = "".join(text_of(test).split())
    for body in blocks(page, "python"):
        compile(body, page, "exec")
        calls = ["".join(call.split()) for call in CALLS.findall(body)]
        assert Path(page).name in tests or any(call in tests for call in calls), body


@pytest.mark.parametrize("page", having("sh"))
def test_commands_run_as_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a page one after another in one folder; what is printed below a command is what it
    prints.
    """
    monkeypatch.chdir(tmp_path)
    for body in blocks(page, "sh"):
        if answer := re.fullmatch(r"\$ (.*)\n(.*)\n", body):
            assert " ".join(ran(shlex.split(answer[1])).split()) == answer[2]
            continue
        for words in command_lines(body):
            ran(words)


def ran(words: list[str]) -> str:
    assert words[0] == "dpfl"
    quick = QUICK if words[1] == "run" and "--resume" not in words else []
    done = CliRunner().invoke(app, [*words[1:], *quick])
    assert done.exit_code == 0, (words, done.output, done.exception)
    return done.stdout


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a reader has: a key, the demo as an experiment, and two runs of it."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "experiment.toml").write_text(blocks("docs/experiments.md", "toml")[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("DPFL_KEY", str(folder / "key.pem"))
        ran(["dpfl", "key", "new"])
        for seed, out in enumerate(("runs/a", "runs/b")):
            ran(shlex.split(f"dpfl run experiment.toml --set seed={seed} --out {out}"))
    return folder


@pytest.mark.xdist_group("commands")
@pytest.mark.parametrize("page", having(""))
def test_other_commands_run_or_are_understood(
    page: str, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each on what its reader has by then; what takes long, or other machines, is read up to where
    it would begin.
    """
    bodies = [
        body
        for body in blocks(page, "")
        if re.search(r"^(\$ )?(dpfl|make|pip|python) ", body, re.MULTILINE)
    ]
    if bodies:
        shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DPFL_KEY", str(tmp_path / "key.pem"))
    for body in bodies:
        for words in command_lines(body):
            if words[0] == "dpfl":
                understood(words[1:])
                if any(re.match(begins, shlex.join(words[1:])) for begins in ONLY_READ):
                    continue
                make_room(words)
                ran(words)
                if words[1] == "certify":  # it is passed on to whoever verifies it
                    shutil.copy(Path(words[2]) / "certificate.json", tmp_path)
            elif words[0] == "make":
                assert re.search(rf"^{words[1]}:", text_of("Makefile"), re.MULTILINE)
            elif words[0] == "pip":
                check_install(words)
            elif words[0] == "python":
                assert (ROOT / words[1]).is_file()
            else:
                assert words[0] in OTHER_WORDS, words


def make_room(words: list[str]) -> None:
    """What a command makes is not there before it."""
    own = (
        [os.environ["DPFL_KEY"], f"{os.environ['DPFL_KEY']}.pub"]
        if words[1:] == ["key", "new"]
        else []
    )
    for path in [
        *map(Path, own),
        *(Path(after) for word, after in pairwise(words) if word in ("--out", "--write")),
    ]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def test_what_is_only_read_is_somewhere() -> None:
    """A reason for a command that nobody prints any more is deleted, and the tests that it names
    are there.
    """
    plain = re.findall(
        r"^(?:\$ )?dpfl (.*)$",
        "\n".join(body for page in PAGES for body in blocks(page, "")),
        re.MULTILINE,
    )
    for begins, why in ONLY_READ.items():
        assert any(re.match(begins, line) for line in plain), begins
        for path in re.findall(r"tests/[\w/.]+\w", why):
            assert (ROOT / path).exists(), path


def understood(words: list[str]) -> None:
    command, rest = load_command(words[0]), words[1:]
    while True:
        context = command.make_context(words[0], list(rest))
        if not hasattr(command, "resolve_command"):
            return
        _, command, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )


def check_install(words: list[str]) -> None:
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    assert words[1] == "install"
    for extra in re.findall(r"\[(\w+)\]", words[2]):
        assert extra in extras


@pytest.mark.parametrize("page", having("toml"))
def test_experiments_are_valid(page: str) -> None:
    for body in blocks(page, "toml"):
        parse(tomllib.loads(body))


def test_the_demo_is_the_experiment_that_is_printed() -> None:
    (text,) = blocks("docs/experiments.md", "toml")
    assert tomllib.loads(text) == DEMO


def test_the_examples_are_valid() -> None:
    for path in (ROOT / "examples").glob("*.toml"):
        load(path)


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert {language for page in PAGES for language, _ in BLOCK.findall(text_of(page))} <= {
        "",
        "python",
        "sh",
        "toml",
    }


# Pages


def test_the_readme_is_short_and_opens_with_the_two_commands() -> None:
    readme = text_of("README.md")
    first = blocks("README.md", "")[0]
    assert [words[:2] for words in command_lines(first)] == [["make", "demo"], ["make", "test"]]
    assert readme.index("make demo") < 40
    assert len(readme.splitlines()) <= 120


def test_the_page_of_commands_is_up_to_date() -> None:
    """If this fails: python scripts/reference.py."""
    assert text_of("docs/commands.md") == commands()


def test_every_system_is_in_the_table_of_systems() -> None:
    told = text_of("docs/systems.md").partition("## Side by side")[0]
    assert [name for name in ALGORITHMS if f"`{name}`" not in told] == []


class Loader(yaml.SafeLoader):
    """mkdocs.yml names functions, which are not of interest here."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def test_every_page_is_on_the_site() -> None:
    def files(nav: Any) -> Iterator[str]:
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from [item] if isinstance(item, str) else files(item)

    listed = list(files(yaml.load(text_of("mkdocs.yml"), Loader)["nav"]))
    written = {
        page.removeprefix("docs/")
        for page in PAGES
        if re.fullmatch(r"docs/((start|results)/)?[\w-]+\.md", page)
    }
    assert len(listed) == len(set(listed))
    assert set(listed) == written | set(extra_pages())


# Links


def anchors(text: str, again: str = "-") -> set[str]:
    """As GitHub and the site make them of headings; the site marks the second of a name by `_`."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.*)$", BLOCK.sub("", text), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {
        f"{slug}{again}{number}" if number else slug
        for slug, last in found.items()
        for number in range(last + 1)
    }


def links(text: str) -> Iterator[tuple[str, str]]:
    """Those that stay here: a file, or none, and an anchor, or none."""
    prose = re.sub(r"`[^`\n]*`", "", BLOCK.sub("", text))
    for target in (
        *LINK.findall(prose),
        *re.findall(r"<(?:a|img)\b[^>]*?(?:href|src)=\"([^\"]+)\"", prose),
    ):
        if not target.startswith(("http://", "https://", "data:")):
            name, _, anchor = target.partition("#")
            yield name, anchor


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for name, anchor in links(text_of(page)):
        target = f"{name}#{anchor}"
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text()), target


def test_every_link_of_the_site_leads_somewhere() -> None:
    """As `make docs` would find, without its environment: pages that are made, notebooks and
    examples included.
    """
    docs = ROOT / "docs"
    pages = extra_pages() | {
        path.relative_to(docs).as_posix(): path.read_text() for path in docs.rglob("*.md")
    }
    site = {name: with_site_links(text, name) for name, text in pages.items()}
    for page, text in site.items():
        for name, anchor in links(text):
            found = os.path.normpath(Path(page).parent / name) if name else page
            assert found in site or (docs / found).is_file(), (page, name)
            assert not anchor or anchor in anchors(site[found], "_"), (page, name, anchor)


def test_what_the_api_page_names_is_there() -> None:
    named = re.findall(r"^::: (\S+)$", text_of("docs/api.md"), re.MULTILINE)
    assert len(named) > 20
    assert [name for name in named if pydoc.locate(name) is None] == []
