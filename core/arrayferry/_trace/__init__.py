"""`trace`: counts the arrays that cross between libraries and devices in a block of code, by line of code."""
