"""Configuration of the site. ``python docs/make.py`` builds it; warnings are errors.

Why Sphinx with furo and MyST: pages stay plain Markdown that a host renders as well, search works
without a server, nothing is fetched from another host, and both are well kept. (mkdocs-material
announces its end of life for May 2027.)
"""

import flwr_fbo

project = "flwr-fbo"
author = "the authors of flwr-fbo"
version = release = flwr_fbo.__version__
extensions = ["myst_parser"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # the glossary has terms below its title, without parts
html_theme = "furo"
html_title = f"flwr-fbo {version}"
html_static_path = ["theme"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
