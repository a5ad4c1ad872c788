"""What is registered: plugins are discovered, checked, and looked up by name and by type."""
