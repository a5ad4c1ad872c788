"""`python -m arrayferry` is the command `arrayferry`, which is a package of its own."""

from arrayferry_cli import main

main()
