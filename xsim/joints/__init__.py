"""Joint types: their description (`types`) and the mathematics of the elementary joints (`elementary`)."""
