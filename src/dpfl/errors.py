"""Errors that a user can act on."""

from typing import TYPE_CHECKING

from dpfl.deprecation import deprecated_names


class DpflError(Exception):
    """A mistake that the user can correct. Its text is one sentence that says what is wrong and
    what to do. The command line prints it and exits with code 2.
    """


class DivergenceError(DpflError):
    """The model is no longer finite: training needs a smaller learning rate, or less noise."""


if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, {"Diverged": "DivergenceError"})
