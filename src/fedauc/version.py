"""Versions of what is installed."""

from importlib.metadata import PackageNotFoundError, version


def installed(name: str) -> str:
    """The version of a distribution; a source tree that is only on the path has none."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
