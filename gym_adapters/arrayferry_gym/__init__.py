"""Adapters for Gymnasium environments."""
