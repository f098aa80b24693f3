"""The command line: one module per verb, and the Hydra application."""
