"""How experiments are described, run and judged."""
