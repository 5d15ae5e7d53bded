"""The OpenAI-compatible face: HTTP, schemas, SSE, metrics and the command line. Knows no array."""
