"""One picture of a sharded model: what each device holds, and what moves because of it."""
