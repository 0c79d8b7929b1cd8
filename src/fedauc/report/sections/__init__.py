"""The sections of the page, each from a ``Study`` to HTML; empty where there is nothing to show."""
