"""Lower bounds on epsilon by explicit attacks."""
