"""Hooks of the documentation site: they add pages from elsewhere in the repository, the examples
and the notebooks, and adjust the links to them.
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
FOREIGN_LINK = re.compile(
    r"<(?:script|img|iframe|link|source)\b[^>]*(?:src|href)=[\"']?https?://[^\"' >]*"
)
LANGUAGES = {".toml": "toml", ".py": "python", ".yaml": "yaml", ".service": "ini"}


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are not in docs/."""
    from mkdocs.structure.files import File

    for page, content in extra_pages().items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Adjusts the links of a page."""
    return with_site_links(markdown, page.file.src_uri)


def extra_pages() -> dict[str, str]:
    """Returns the pages of the site that are not in docs/."""
    pages = {
        page: _relink((ROOT / place).read_text(), place, page) for place, page in PAGES.items()
    }
    notebooks = sorted((ROOT / "examples").glob("*.ipynb"))
    return (
        pages
        | {"examples.md": examples()}
        | {f"notebooks/{path.stem}.md": render_notebook(path) for path in notebooks}
    )


def with_site_links(markdown: str, page: str) -> str:
    """Returns a page of docs/ with the links of the site."""
    return (
        markdown
        if page in (*PAGES.values(), "examples.md")
        else _relink(markdown, f"docs/{page}", page)
    )


def on_post_build(config: Any, **_: Any) -> None:
    """Replaces what the theme would load from other hosts by files of the site.

    The build fails if a page loads anything else from another host.
    """
    from mkdocs.exceptions import PluginError

    site = Path(config.site_dir)
    for page in site.rglob("*.html"):
        local = posixpath.relpath(
            "vendor/iframe-worker/shim.js", page.relative_to(site).parent.as_posix()
        )
        text = page.read_text().replace(SHIM, local)
        page.write_text(text)
        if match := FOREIGN_LINK.search(text):
            raise PluginError(
                f"{page.name} loads {match[0]} from another host; add the file to the site."
            )
    for script in (site / "assets" / "javascripts").glob("bundle.*.js"):
        script.write_text(script.read_text().replace("https://unpkg.com/", "./not-here/"))


def _relink(markdown: str, place: str, page: str) -> str:
    """Replaces links between files by links between pages, and links to source code by names."""

    def target(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), match[1]))
        inside = _page_of(path)
        if inside is None:
            return match[0]
        return posixpath.relpath(inside.partition("#")[0], posixpath.dirname(page) or ".") + (
            "#" + inside.partition("#")[2] if "#" in inside else match[2] or ""
        )

    text = LINK.sub(target, markdown)
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)+(?:src|tests)/[^)]*\)", r"\1", text)


def _page_of(path: str) -> str | None:
    """Returns the page of the site for a file of the repository, or None."""
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
    """Returns a page with every file of examples/."""
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


def render_notebook(notebook: Path) -> str:
    """Returns a notebook with its outputs as a page."""
    parts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += [_output(output.get("data", {})) for output in cell.get("outputs", [])]
    return "\n\n".join(parts) + "\n"


def _output(data: dict[str, Any]) -> str:
    contents = {
        kind: "".join(value) if isinstance(value, list) else value for kind, value in data.items()
    }
    if "image/png" in contents:
        html = (
            '<img alt="what the cell above shows" '
            f'src="data:image/png;base64,{contents["image/png"].strip()}">'
        )
    else:
        html = contents.get("text/html") or f"<pre>{escape(contents.get('text/plain', ''))}</pre>"
    return f'<div class="notebook-output">{html}</div>'
