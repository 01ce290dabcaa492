"""The command `dpfl ui`: serves pages about a folder of runs to a browser."""

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
        Path, typer.Option(help="The folder of the runs; new runs go there, too.")
    ] = Path("runs"),
    port: Annotated[
        int, typer.Option(help="The port; 0 takes any free port.", min=0, max=65535)
    ] = 8642,
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen on; one that other machines can reach needs --token."
        ),
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            help="A secret that every visitor must give, 12 characters or more; 'new' makes one."
        ),
    ] = None,
) -> None:
    """Open a folder of runs in a browser, with live curves, comparisons and a planner.

    The pages also show systems, ledgers and certificates.
    """
    try:
        from dpfl.web.serve import new_token, serve
    except ImportError as error:
        raise DpflError(
            f"The pages need {error.name}, which is not installed: pip install 'dpfl[ui]'"
        ) from None
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if host not in LOCAL and not token:
        raise DpflError(
            f"Anybody who reaches {host} could start and stop runs and read ledgers. Give "
            "--token, or --token new."
        )
    if token is not None and token != "new" and not FIT.fullmatch(token):
        raise DpflError(
            "A token must be hard to guess and fit into an address. Give at least 12 characters "
            "(letters, digits, dots, dashes, underscores), or --token new."
        )
    if host not in LOCAL:
        console.print(
            f"dpfl: warning: anybody who reaches {host} and has the token can start and stop "
            "runs and read ledgers, and the connection is not encrypted. Use it in a network that "
            "you trust, or through an SSH tunnel.",
            markup=False,
        )
    if runs.exists() and not runs.is_dir():
        raise DpflError(f"{runs} is not a folder; give the folder of the runs with --runs.")

    def ready(address: str) -> None:
        console.print(
            f"Open {address} in a browser to see {runs}. Ctrl-C stops these pages, but no run.",
            markup=False,
        )

    serve(runs, host, port, (new_token() if token == "new" else token) or "", ready)
