"""Which worker has which environments, and what is done when one is lost."""
