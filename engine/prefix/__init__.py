"""Rows that earlier texts left behind, for later texts that begin alike."""
