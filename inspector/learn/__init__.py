"""What the pages of *Learn* run: tutorials, arrays made of shards, layouts side by side."""
