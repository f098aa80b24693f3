"""Statistics of a search's scores: what repeats and score errors can tell, as intervals and three-valued verdicts."""
