"""Scripts that run in the ranks of a check, one for each exercise."""
