"""The contract kit for backends."""
