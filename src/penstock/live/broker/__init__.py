"""A broker as a process, and all brokers of a network together."""
