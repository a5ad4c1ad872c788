"""`python -m arrayferry` runs the command `arrayferry` of the package `arrayferry_cli`."""

from arrayferry_cli import main

main()
