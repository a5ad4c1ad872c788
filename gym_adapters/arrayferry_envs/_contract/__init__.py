"""A functional environment: its methods, parameters and actions, and what is checked of them."""
