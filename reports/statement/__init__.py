"""The privacy statement, line by line."""
