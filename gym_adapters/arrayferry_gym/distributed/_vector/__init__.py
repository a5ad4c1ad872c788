"""Environments on workers as one vector environment."""
