"""What ranks run for single claims of the lesson: `run("messages/NAME")`."""
