"""What the pages of *Learn* run: tutorials, arrays made of shards, restored states, layouts side by side."""
