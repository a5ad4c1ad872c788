"""Many arrays at once: the conversion of a whole value, its pairs of backends, and its compiled code."""
