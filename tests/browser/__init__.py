"""The explorer in a real browser: in JupyterLab, Notebook 7 and Voila."""
