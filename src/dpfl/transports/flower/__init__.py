"""Letters over Flower: its SuperLink and SuperNodes carry bytes, and never an app's code to where
the data is.

Nothing else in dpfl imports flwr. What is used of it are its clients of the HTTP interfaces, which
change between versions: so the version is one, and another is refused with a sentence.
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
