"""Taking a value apart into its arrays, and putting it together again around others.

This wing knows structures. What an object is to a conversion it asks a function that it is given.
"""
