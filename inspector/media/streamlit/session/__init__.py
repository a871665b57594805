"""What a browser session knows: its layout, selection, pins, jobs and URL."""
