"""Files, processes, ranks: what is under everything."""
