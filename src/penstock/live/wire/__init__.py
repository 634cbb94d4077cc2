"""Connections, frames and datagrams: what crosses a real network."""
