"""The base class of functional environments, and checks of their methods, parameters and actions."""
