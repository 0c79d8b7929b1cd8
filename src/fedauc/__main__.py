"""`python -m fedauc`."""

from fedauc.cli import main

main()
