"""The subscriber's side of congestion control: what rate is fair, and feedback about it."""
