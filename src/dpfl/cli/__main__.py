"""`python -m dpfl.cli`."""

from dpfl.cli import main

main()
