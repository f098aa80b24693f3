"""What every configuration key means, and sentences for words on the command line that are none of them."""
