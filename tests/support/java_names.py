"""Look up Java names only once: PySpark looks up `functions` and its members at each use.

Each lookup is a request, and the JVM tries many class loaders before it finds that `java` is a package.
"""

from __future__ import annotations

from functools import wraps
from typing import Any


def remember_names() -> None:
    """Cache classes, their methods and packages on the object where they were looked up, in this process."""
    from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView

    for kind in (JVMView, JavaPackage, JavaClass):
        if not hasattr(kind.__getattr__, "__wrapped__"):
            kind.__getattr__ = _kept(kind.__getattr__, (JavaClass, JavaMember), JavaPackage)


def _kept(look: Any, kinds: tuple[type, ...], package: type) -> Any:
    @wraps(look)
    def look_once(self: Any, name: str) -> Any:
        found = look(self, name)
        # A class that does not exist yet looks like a package, so only lower-case names of packages are kept.
        if isinstance(found, kinds) or (isinstance(found, package) and name.islower()):
            self.__dict__[name] = found
        return found

    return look_once
