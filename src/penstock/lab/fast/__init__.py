"""Retrieval at the size of 004: a simulator for this protocol alone, which drives the same routers as all others."""
