"""Taking a value apart into its arrays, and putting it together again around others.

This layer knows structures. A function that is passed in tells it what an object is to a conversion.
"""
