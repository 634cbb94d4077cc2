"""Measures of a network while it runs: its trace records, from the stream `_trace` to the tables of the pipeline.

`writers` knows how far each node's records go, `folder` lands them as a run that is still going, `query` follows the
stream with Structured Streaming, and `view` is what is shown. The tables themselves are those of `pipeline.steps`.
"""
