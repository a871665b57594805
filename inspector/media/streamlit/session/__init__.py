"""The state of a browser session: its layout, selection, pins, jobs and URL."""
