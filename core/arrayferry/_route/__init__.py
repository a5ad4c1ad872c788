"""One array from one backend to another: the choice of steps, and their execution."""
