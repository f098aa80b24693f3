"""Text as numbers: tokens, words and vocabularies."""
