"""The papers' tables and figures as data: computed, never copied; what a paper printed stands beside it."""
