"""Training methods: a gradient transform combined with an update."""
