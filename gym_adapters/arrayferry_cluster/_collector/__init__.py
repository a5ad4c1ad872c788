"""Segments of trajectories that are collected on workers."""
