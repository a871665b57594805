"""Sections: one fact each, computed and worded once, rendered by every medium in `inspector.media`."""
