"""Pages, releases, exports and the model card."""
