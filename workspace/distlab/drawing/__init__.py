"""What all pictures have in common: figures with words for whoever cannot see them, colours, lanes of time, hosts."""
