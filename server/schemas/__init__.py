"""What clients send and what they get back, in OpenAI's words: pydantic models, no behaviour."""
