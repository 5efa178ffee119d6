"""Networks with parameters Phi: they learn what the expert says, a window at a time."""
