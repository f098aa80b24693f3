"""The data sets: public declarations, and the only code that reads a record."""
