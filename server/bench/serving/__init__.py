"""`mtplx bench --serve`: how OpenAI servers, this one or others, answer many clients at once."""
