"""`trace`: which arrays cross between libraries and devices in a part of a program, where, and at what cost."""
