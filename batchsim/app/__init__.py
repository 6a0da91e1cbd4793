"""The explorer as a page of its own, for a class: what `notebooks/.voila/voila.py` has Voila run."""
