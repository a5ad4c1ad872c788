"""Functional environments: their methods, parameters and actions, and checks of these."""
