"""Runs the notebooks of examples/ and stores their outputs: `make notebooks`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def main() -> None:
    """Runs every notebook in a separate kernel."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory() as place:
            NotebookClient(notebook, timeout=600, resources={"metadata": {"path": place}}).execute()
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
        notebook.metadata.pop("language_info", None)
        nbformat.write(notebook, path)
        print(f"ran {path.name}")


if __name__ == "__main__":
    main()
