"""Requests for lost messages, and repairs."""
