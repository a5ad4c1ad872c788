"""Adapters between the library of an environment and the library of an agent, and their spaces."""
