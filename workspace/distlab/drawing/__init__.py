"""What all pictures have in common: figures with alternative texts, colours, lanes of time, hosts."""
