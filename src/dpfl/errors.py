"""Errors that a user can act on."""


class DpflError(Exception):
    """A sentence that says what is wrong and what to do; the command line prints it and exits with
    code 2.
    """


class Diverged(DpflError):
    """Training has left all bounds: a smaller learning rate, or less noise, is needed."""
