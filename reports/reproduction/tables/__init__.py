"""The papers' tables and figures as computed data, with the printed numbers for comparison."""
