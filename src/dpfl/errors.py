"""Errors that a user can act on."""


class DpflError(Exception):
    """A mistake that the user can correct. Its text is one sentence that says what is wrong and
    what to do. The command line prints it and exits with code 2.
    """


class Diverged(DpflError):
    """The model is no longer finite: training needs a smaller learning rate, or less noise."""
