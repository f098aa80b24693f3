"""The curator's page, the release, the export and the model card."""
