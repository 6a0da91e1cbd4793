"""A property that is computed once for each instance, also by several threads at once."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    kept = cached_property
else:

    class kept(cached_property):
        """`cached_property` without a lock, as Python 3.12 has it.

        Before, one lock serves all instances: two threads wait for each other for ever if one property needs
        another. Two threads may compute a value at the same time, and both find the same.

        >>> class Circle:
        ...     @kept
        ...     def area(self):
        ...         print("computed")
        ...         return 3.14
        >>> circle = Circle()
        >>> circle.area, circle.area
        computed
        (3.14, 3.14)
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
