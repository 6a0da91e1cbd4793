"""The lessons' exercises, which grade themselves; one module a lesson."""

from importlib import import_module
from pkgutil import iter_modules

from batchsim.teaching.exercises.exercise import REGISTERED, Exercise

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
# By name: the lesson's number and the exercise's in it.
EXERCISES: dict[str, Exercise] = dict(sorted(REGISTERED.items()))
