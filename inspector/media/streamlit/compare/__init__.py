"""The columns, figures and times of the page Compare."""
