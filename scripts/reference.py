"""Writes docs/reference.md from the code: keys, options, columns and files, a line each."""

from __future__ import annotations

from pathlib import Path

from dpfl.experiment import Experiment
from dpfl.report.reference import page

DOCS = Path(__file__).parents[1] / "docs"


def keys() -> dict[str, tuple[str, object]]:
    """Every key of an experiment by its dotted name, with type and default."""
    found: dict[str, tuple[str, object]] = {}
    for name, field in Experiment.model_fields.items():
        section = getattr(field.annotation, "model_fields", None)
        for key, inner in section.items() if section else [("", field)]:
            kind = getattr(inner.annotation, "__name__", str(inner.annotation)).replace(" | None", "")
            found[f"{name}.{key}" if key else name] = (kind, inner.default)
    return found


def main() -> None:
    (DOCS / "reference.md").write_text(page(keys()))


if __name__ == "__main__":
    main()
