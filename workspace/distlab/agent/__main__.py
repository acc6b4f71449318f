"""`python -m distlab.agent`: a host's agent.

Not `python -m distlab.agent.agent`: multiprocessing imports a program's main module again in
every process that it forks, unless it is called __main__.
"""

from distlab.agent.agent import Agent

if __name__ == "__main__":
    Agent().serve()
