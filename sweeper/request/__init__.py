"""The command as a typed value, built once from Hydra's configuration."""
