"""What a report says of a sweep, as plain values."""
