"""What it costs, and what it gives with few labels, beside the obvious alternatives."""
