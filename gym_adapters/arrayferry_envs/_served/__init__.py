"""A functional environment as an ordinary environment and as a vector environment."""
