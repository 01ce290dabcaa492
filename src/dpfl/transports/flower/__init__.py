"""Messages over Flower: its SuperLink and SuperNodes carry bytes, and never code to the data.

Nothing else in dpfl imports flwr. The clients of Flower's HTTP interfaces that are used here change
between versions, so exactly one version is supported, and any other is refused with one sentence.

- The server's machine: `server.py` (a SuperLink and its nodes) and `flower_transport.py`.
- A node's machine: `daemon.py` (`dpfl node run`), `host.py` and `executor.py`.
- Both: `processes.py` and `child.py` (Flower's processes), `flower_messages.py`, `tls_keys.py`.
- In a Flower deployment that exists already: `grid_transport.py`.
- A whole federation on one machine: `local_federation.py`.
"""

from importlib.metadata import PackageNotFoundError, version

from dpfl.errors import DpflError

FLOWER = "1.41.0"

try:
    if version("flwr") != FLOWER:
        raise DpflError(
            f"This dpfl speaks with Flower {FLOWER}, and {version('flwr')} is installed: pip "
            f"install flwr=={FLOWER}"
        )
except PackageNotFoundError:
    raise DpflError(
        "A federation needs Flower, which is not installed: pip install 'dpfl[flower]'"
    ) from None
