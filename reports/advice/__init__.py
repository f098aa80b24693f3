"""Advice on how to spend a budget, from measurements that come with the program."""
