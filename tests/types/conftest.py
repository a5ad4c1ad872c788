"""`checked.py` is read by type checkers only."""

collect_ignore = ["checked.py"]
