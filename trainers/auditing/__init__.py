"""Trainings with canaries: records or gradients that an attacker put there, and what the noisy steps say of them."""
