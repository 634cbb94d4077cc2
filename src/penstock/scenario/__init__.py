"""A run as data: the network, what its clients do, what goes wrong, and what must hold."""
