"""Collects segments of trajectories on workers."""
