"""Sharding Inspector: where every shard of a JAX model lives, why, and what it costs."""
