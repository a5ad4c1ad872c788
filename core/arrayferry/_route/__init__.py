"""One array from one backend to another: which steps there are, and how each is taken."""
