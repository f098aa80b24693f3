"""Everything that touches the data: methods, samplers, schedules, scores, engines, models, data sets, the loop."""
