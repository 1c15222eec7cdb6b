"""Numbers and plots about encodings."""
