"""Parts of the contract kit, `arrayferry.testing`."""
