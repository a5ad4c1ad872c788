"""Whole loops in compiled code: rollouts and evaluations."""
