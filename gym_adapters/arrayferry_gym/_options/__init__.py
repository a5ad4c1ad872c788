"""The options that users pass: libraries, seeds, masks and modes, with their types and the values that are refused."""
