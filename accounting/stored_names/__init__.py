"""Durable names of the classes that plans and ledgers hold."""
