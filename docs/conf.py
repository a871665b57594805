"""Settings of Sphinx: `python3 run.py docs` builds the site, and ends with status 1 after a warning."""

from __future__ import annotations

from inspector import __version__

project = "Sharding Inspector"
author = "The authors of Sharding Inspector"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Links to a heading, such as `#own-runs`, as GitHub names them.
myst_heading_anchors = 3

# Docstrings have Google's sections, and names in single backticks as in Markdown.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False
# The text of each argument says its type; the annotations of a Model fill a page.
autodoc_typehints = "none"

html_theme = "furo"
html_title = f"Sharding Inspector {release}"
html_show_copyright = False
html_copy_source = False
