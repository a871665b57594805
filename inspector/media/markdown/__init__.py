"""Sections as GitHub-flavored Markdown, for pull requests."""
