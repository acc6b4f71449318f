"""What makes the exercise of this lesson right, and which mistake was made."""
