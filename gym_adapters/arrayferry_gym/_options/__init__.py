"""What users pass: libraries, seeds, masks and modes, their types, and what is refused."""
