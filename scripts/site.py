"""Hooks of the documentation site: pages from elsewhere in the repository, the examples and
notebooks, and links to them.
"""

from __future__ import annotations

import json
import posixpath
import re
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "examples/flower-app/README.md": "flower-app.md",
}
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
SHIM = "https://unpkg.com/iframe-worker/shim"
LOADED = re.compile(
    r"<(?:script|img|iframe|link|source)\b[^>]*(?:src|href)=[\"']?https?://[^\"' >]*"
)
LANGUAGES = {".toml": "toml", ".py": "python", ".yaml": "yaml", ".service": "ini"}


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for page, content in made().items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    return as_on_the_site(markdown, page.file.src_uri)


def made() -> dict[str, str]:
    """Pages of the site that do not lie in docs/."""
    found = {page: _moved((ROOT / place).read_text(), place, page) for place, page in PAGES.items()}
    notebooks = sorted((ROOT / "examples").glob("*.ipynb"))
    return (
        found
        | {"examples.md": examples()}
        | {f"notebooks/{path.stem}.md": rendered(path) for path in notebooks}
    )


def as_on_the_site(markdown: str, page: str) -> str:
    """A page of docs/ with links as the site has them."""
    return (
        markdown
        if page in (*PAGES.values(), "examples.md")
        else _moved(markdown, f"docs/{page}", page)
    )


def on_post_build(config: Any, **_: Any) -> None:
    """What the theme would load from elsewhere comes with the site; a page that asks for anything
    else fails the build.
    """
    from mkdocs.exceptions import PluginError

    site = Path(config.site_dir)
    for page in site.rglob("*.html"):
        local = posixpath.relpath(
            "vendor/iframe-worker/shim.js", page.relative_to(site).parent.as_posix()
        )
        text = page.read_text().replace(SHIM, local)
        page.write_text(text)
        if found := LOADED.search(text):
            raise PluginError(f"{page.name} loads {found[0]} from elsewhere; bring it along.")
    for script in (site / "assets" / "javascripts").glob("bundle.*.js"):
        script.write_text(script.read_text().replace("https://unpkg.com/", "./not-here/"))


def _moved(markdown: str, place: str, page: str) -> str:
    """Links between files of the repository as links between pages of the site; to source code, as
    its name.
    """

    def target(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), found[1]))
        inside = _page_of(path)
        if inside is None:
            return found[0]
        return posixpath.relpath(inside.partition("#")[0], posixpath.dirname(page) or ".") + (
            "#" + inside.partition("#")[2] if "#" in inside else found[2] or ""
        )

    moved = LINK.sub(target, markdown)
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)+(?:src|tests)/[^)]*\)", r"\1", moved)


def _page_of(path: str) -> str | None:
    """Where a file of the repository is on the site."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".ipynb"):
        return f"notebooks/{Path(path).stem}.md"
    if path.startswith("examples"):
        return f"examples.md#{_slug(path.removeprefix('examples').strip('/'))}"
    return "index.md" if path == "README.md" else None


def _slug(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", name.lower())


def examples() -> str:
    """Every file of examples/, whole."""
    parts = [
        "# Examples",
        "",
        "The files of `examples/`, as they are. Notebooks: "
        + ", ".join(
            f"[{path.stem}](notebooks/{path.stem}.md)"
            for path in sorted((ROOT / "examples").glob("*.ipynb"))
        )
        + ".",
    ]
    for folder in ("", "deployment", "flower-app"):
        if folder:
            parts.append(f"\n## {folder}")
        for path in sorted(
            (ROOT / "examples" / folder).rglob("*") if folder else (ROOT / "examples").glob("*")
        ):
            if path.is_file() and path.suffix in LANGUAGES and "__pycache__" not in path.parts:
                name = path.relative_to(ROOT / "examples").as_posix()
                parts.append(
                    f"\n## {name}\n\n```{LANGUAGES[path.suffix]}\n{path.read_text().rstrip()}\n```"
                )
    return "\n".join(parts) + "\n"


def rendered(notebook: Path) -> str:
    """A notebook as a page, with what it showed."""
    parts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += [_output(output.get("data", {})) for output in cell.get("outputs", [])]
    return "\n\n".join(parts) + "\n"


def _output(data: dict[str, Any]) -> str:
    held = {
        kind: "".join(value) if isinstance(value, list) else value for kind, value in data.items()
    }
    if "image/png" in held:
        shown = (
            '<img alt="what the cell above shows" '
            f'src="data:image/png;base64,{held["image/png"].strip()}">'
        )
    else:
        shown = held.get("text/html") or f"<pre>{escape(held.get('text/plain', ''))}</pre>"
    return f'<div class="notebook-output">{shown}</div>'
