"""Taking a value apart into its arrays, and putting it together again around others.

This layer knows structures. It asks a function, `kind_of`, how a conversion treats an object.
"""
