"""Penstock: content-based publish/subscribe that keeps its flow under control."""
