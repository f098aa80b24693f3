"""The command as a typed value, made once at Hydra's door."""
