"""Policies of any library, and the steps that they take in environments of any kind."""
