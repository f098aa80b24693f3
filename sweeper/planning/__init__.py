"""Planning: overrides to points, points to a plan, and the plan's price. Nothing here reads private records."""
