"""The end-to-end transport: order, loss detection and recovery over any best-effort network (002 chapters 3 and 4)."""
