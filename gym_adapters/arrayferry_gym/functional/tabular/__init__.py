"""Tabular environments of Gymnasium, and environments of your own tables."""
