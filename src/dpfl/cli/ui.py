"""The command `dpfl ui`: pages over a folder of runs, in a browser on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dpfl.errors import DpflError

FIT = re.compile(r"[A-Za-z0-9._-]{12,}")
LOCAL = ("127.0.0.1", "localhost", "::1")


def ui(
    runs: Annotated[
        Path, typer.Option(help="The folder that holds runs; new ones are started there.")
    ] = Path("runs"),
    port: Annotated[int, typer.Option(help="0 for any that is free.", min=0, max=65535)] = 8642,
    host: Annotated[
        str, typer.Option(help="An address that others can reach needs --token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(help="What everybody must bring, 12 letters or more; 'new' makes one."),
    ] = None,
) -> None:
    """Look at runs in a browser: live curves and epsilon, comparisons, a planner, systems, ledgers,
    certificates.
    """
    try:
        from dpfl.web.serve import new_token, serve
    except ImportError as error:
        raise DpflError(
            f"The pages need {error.name}, which is not installed: pip install 'dpfl[ui]'"
        ) from None
    said = Console(stderr=True, highlight=False, soft_wrap=True)
    if host not in LOCAL and not token:
        raise DpflError(
            f"Whoever reaches {host} could start and stop runs and read ledgers: give --token, or "
            "--token new."
        )
    if token is not None and token != "new" and not FIT.fullmatch(token):
        raise DpflError(
            "A token must be hard to guess and fit an address: give 12 letters or more (letters, "
            "digits, dots, dashes and "
            "underscores), or --token new."
        )
    if host not in LOCAL:
        said.print(
            f"dpfl: warning: everybody who reaches {host} and has the token can start and stop "
            "runs and read ledgers, and the "
            "connection is not encrypted: use it inside a network that you trust, or through an "
            "SSH tunnel.",
            markup=False,
        )
    if runs.exists() and not runs.is_dir():
        raise DpflError(f"{runs} is no folder; name the one that holds runs with --runs.")

    def ready(address: str) -> None:
        said.print(f"{runs} in a browser: {address}   (Ctrl-C ends it; runs go on)", markup=False)

    serve(runs, host, port, (new_token() if token == "new" else token) or "", ready)
