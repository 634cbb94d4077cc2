"""The pages that the lab writes."""
