"""Functional environments as Gymnasium environments: single and vector ones."""
