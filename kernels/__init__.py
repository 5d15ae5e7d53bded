"""Array functions that serve the models: a plain reference for each."""
