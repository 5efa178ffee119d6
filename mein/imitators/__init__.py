"""Networks with parameters Phi: they learn to predict the expert's output from one window at a time."""
