"""A draft head for a model, from nothing but the model: it writes texts, and a block learns to foresee them."""
