"""Whole loops in compiled code: rollouts, episodes and evaluations."""
