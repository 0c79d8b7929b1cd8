"""One experiment across organisations: the same methods, with every client on a machine of its own."""
