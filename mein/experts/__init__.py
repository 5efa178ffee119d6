"""Networks with parameters Theta: they learn from labels."""
