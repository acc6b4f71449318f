"""What ranks run for single claims of the lesson: `run("data_parallel/NAME")`."""
