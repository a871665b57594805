"""Read-only tools for agents, over the Model Context Protocol: verbs of the command line on one folder."""
