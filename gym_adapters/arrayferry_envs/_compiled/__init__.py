"""Functional environments in code that JAX compiles: rollouts, evaluations, `Functions` and `to_gymnax`."""
