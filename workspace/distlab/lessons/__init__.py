"""The lessons of the course, a folder each: its card, experiments, pictures and the check of its exercise."""
