"""Calls policies of any library from Python, and steps environments with their actions."""
