"""The guides, replayed: each tutorial is a function whose body is cells, run and shown one by one.

A cell begins with `# %%` and a title, as in a notebook kept as a script. Comment lines right after it are
its words (Markdown), and what follows an empty line is its code: exactly what is shown, and what ran. A
comment `# draw: x, y` names the arrays to be drawn after it, `# refused: error` the exception it is about.
All cells of a tutorial share one namespace, which at first holds `mesh_shape` and `axis_names`. The function
around them keeps an import from running them; it is read as source by `replay`, and never called.
"""
