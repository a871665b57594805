"""The page in the browser: its style, its width, and text for it."""
