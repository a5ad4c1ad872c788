"""The code that runs on a worker: environments, their groups and policies, and the messages to the worker."""
