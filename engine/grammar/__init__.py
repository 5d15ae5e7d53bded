"""Output that keeps to a schema, a regular expression, a list of choices or a grammar."""
