"""Tracing a running network: how the order to trace reaches every node."""
