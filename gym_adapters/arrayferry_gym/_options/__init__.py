"""Checks of the options that users pass to adapters and environments, and the errors for invalid values."""
