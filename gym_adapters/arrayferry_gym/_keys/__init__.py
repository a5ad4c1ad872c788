"""Keys of compiled code: what makes two environments, policies or functions the same."""
