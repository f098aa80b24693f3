"""The live display of a running sweep: steps from the jobs, words by what a rule may show, time by plan and pace."""
