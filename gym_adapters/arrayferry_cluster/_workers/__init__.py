"""The code that runs on workers: groups of environments with their policies, and what is sent to and from workers."""
