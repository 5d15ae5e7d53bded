"""Speculative decoding: tokens, arrays and models. Knows no HTTP, no JSON, no asyncio."""
