"""Methods: a gradient transform crossed with an update."""
