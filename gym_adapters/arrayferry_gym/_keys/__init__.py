"""Keys of compiled code: what makes two environments, policies or parameters the same."""
