"""What a training script of the user's own imports: its attempt, and readers of other libraries' accountants."""
