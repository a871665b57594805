"""Tutorials that follow guides of JAX and Flax. Each is a function whose body consists of cells.

A cell begins with `# %%` and a title. The comment lines after the title are its text in Markdown. The code
after the next empty line is shown and run. A comment `# draw: x, y` names arrays, or a mesh, to draw after
the cell, `# refused: error` the exception that the cell is about. All cells share one namespace, which has
`mesh_shape` and `axis_names` at first. `replay` reads the source of the function and never calls it.
"""
