"""What an audit of what ran is made of: its record, and the tests of released noise. No bound rests on it."""
