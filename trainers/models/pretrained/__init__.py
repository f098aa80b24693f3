"""Models that start from a pretrained folder, and adapters beside frozen layers."""
