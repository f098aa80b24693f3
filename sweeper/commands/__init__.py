"""The command line: one module for each verb, and the Hydra application."""
