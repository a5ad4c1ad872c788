"""These import packages that only `make audit-all` installs."""

collect_ignore_glob = ["reproduced/*.py", "implementations.py", "verdicts.py"]
