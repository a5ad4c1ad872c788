"""The private modules of the contract kit, `arrayferry.testing`."""
