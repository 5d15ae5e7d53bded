"""Models: where they come from, and the two ways a target runs (by rows, or one sequence at a time)."""
