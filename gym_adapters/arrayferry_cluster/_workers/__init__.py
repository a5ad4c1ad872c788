"""What runs on a worker: environments, groups of them and their policies; and the messages to it."""
