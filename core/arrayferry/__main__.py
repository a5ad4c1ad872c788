"""`python -m arrayferry` runs the command `arrayferry`, which is in a separate package."""

from arrayferry_cli import main

main()
