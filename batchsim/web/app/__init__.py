"""The explorer as a web page for a class: the parts that `notebooks/.voila/voila.py` adds to Voila."""
