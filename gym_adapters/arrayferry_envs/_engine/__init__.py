"""Steps and resets batches of functional environments in any library of the Array API. In JAX, steps are compiled."""
