"""Real time: the same machines on sockets, as broker processes and as a library for clients."""
