"""The conversion of whole values. Python code that is generated for the structure of a value converts its arrays."""
