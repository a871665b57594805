"""The sidebar that edits the layout."""
