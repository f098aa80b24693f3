"""A release in standard forms: for registries, trusted research environments, model hubs, bills of materials."""
