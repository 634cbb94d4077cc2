"""Cost-benefit flow control: brokers price their links, and a sender's home broker buys each message its way (003)."""
