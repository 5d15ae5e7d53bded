"""`mtplx train-head`: a draft head for a model, made on this machine."""
