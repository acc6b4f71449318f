"""The instructor's verbs on the machine that holds the containers: up, down, urls, preflight.

They run on the machine itself, where nothing is installed but Python and Docker, so this room and
all that it imports do with the standard library.
"""
