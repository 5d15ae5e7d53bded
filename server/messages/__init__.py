"""The model's text as a message: content, reasoning and calls of tools; and how calls are forced."""
