"""Who carries it: a best-effort content-based network of brokers (Siena B-DRP, 002 section 2.7)."""
