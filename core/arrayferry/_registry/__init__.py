"""The plugins: they are discovered, checked, registered, and looked up by name and by type."""
