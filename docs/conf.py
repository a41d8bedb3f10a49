"""How Sphinx builds these pages. `make docs` treats every warning as an error."""

from importlib.metadata import version as version_of

project = "rota"
author = "the rota authors"
release = version = version_of("rota")

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"rota {release}"
html_copy_source = False
html_show_copyright = False
