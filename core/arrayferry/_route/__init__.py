"""The conversion of one array: the choice of its steps, and their execution."""
