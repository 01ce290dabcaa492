"""Runs the demo, records its terminal and writes docs/demo.svg, the picture in the README."""

from __future__ import annotations

import re
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from dpfl.config.experiment import load
from dpfl.views.terminal.progress import LiveProgress
from dpfl.views.terminal.tables import print_outcome

TARGET = Path(__file__).parents[1] / "docs" / "demo.svg"


def main() -> None:
    """Writes the picture."""
    console = Console(record=True, width=112, force_terminal=True)
    progress = LiveProgress(Console(stderr=True, width=112, force_terminal=True))
    with tempfile.TemporaryDirectory() as folder:
        result = load(None).run(Path(folder) / "run", progress=progress)
        console.print("[bold]$ dpfl run[/bold]", highlight=False)
        console.print(progress.bar)
        print_outcome(replace(result, folder=Path("runs/demo")), console)
        svg = console.export_svg(title="make demo")
    TARGET.write_text(re.sub(r"@font-face\s*{.*?}|<!--.*?-->", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
