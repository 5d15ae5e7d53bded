"""Drafters: cheap guesses at the next tokens. No drafter touches the target's cache."""
