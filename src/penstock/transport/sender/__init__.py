"""The publisher's side: the publication record, the rate limiter, and who may slow it down."""
