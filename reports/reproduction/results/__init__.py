"""What a figure reads of the search behind it, from a sweep's folder or from a compressed file in the repository."""
