"""A scenario on real sockets, with links that lose, delay and are shared."""
