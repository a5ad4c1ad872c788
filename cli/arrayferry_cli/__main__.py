"""`python -m arrayferry_cli` is the command `arrayferry`."""

from . import main

main()
