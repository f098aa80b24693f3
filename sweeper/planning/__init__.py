"""Planning: overrides become points, points a plan, and a plan a price. Nothing here reads private records."""
