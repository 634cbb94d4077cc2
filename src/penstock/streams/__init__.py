"""Guaranteed streams: exactly once and in order per pubend, across crashes (001)."""
