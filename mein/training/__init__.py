"""Algorithm 1: three stages over one loop, in a run folder that survives a kill."""
