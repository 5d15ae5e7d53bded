"""`mtplx bench`: how much faster speculation is than plain decoding, on which text."""
