"""Retrieval: loose subscriptions that are answered from the network's caches and from new publications (004)."""
