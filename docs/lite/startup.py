"""A kernel's first lines in a browser."""

import logging
import os

# Pyodide's Matplotlib has a list of fonts of another version, and says in red that it makes a new one.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
# The folder of the page's files is there unless the browser forbids storage, as in some private windows.
kept = os.getcwd().startswith("/drive")
os.environ["BATCHSIM_PROGRESS"] = "/drive/progress.json" if kept else "off: this browser stores no files"
