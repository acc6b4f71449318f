"""What each exercise has to fulfil."""
