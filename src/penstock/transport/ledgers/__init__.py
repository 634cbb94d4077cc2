"""The product's scheme: typed sketches in records and ledgers, requests to the publisher, growing heartbeats."""
