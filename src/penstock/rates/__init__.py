"""Fair rates of links: what a link can carry is shared by those who send over it, and withheld where they start."""
