"""The Python client: connect, publish, subscribe."""
