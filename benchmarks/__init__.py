"""What it costs: speed beside the obvious alternative, memory beside the size of the corpus."""
