"""The lessons' training scripts, each differing from the one before by what its lesson teaches."""
