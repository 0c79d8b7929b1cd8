"""The papers' tables as cells that can be run: `fedauc reproduce`."""

from fedauc.papers import p000, p001, p002, p004
from fedauc.papers.cells import Cell, Paper
from fedauc.papers.rows import Measured

PAPERS = {paper.name: paper for paper in (p000.PAPER, p001.PAPER, p002.PAPER, p004.PAPER)}

__all__ = ["PAPERS", "Cell", "Measured", "Paper"]
