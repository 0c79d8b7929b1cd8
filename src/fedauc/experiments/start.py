"""Where a run starts: fresh, from a saved model, or from a model that another method trains first.

Yuan et al. 2021 (section 6) train features with cross-entropy and then maximise AUC from there with a fresh
last layer, because a deep network learns little from an AUC loss alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from fedauc.core import checkpoint, tree
from fedauc.core.tree import Tree
from fedauc.data.preprocess import Preprocessor
from fedauc.errors import InputError, some
from fedauc.models import Model


def from_file(
    path: Path, model: Model, params: Tree, head: str, columns: Sequence[str] | None = None
) -> Tree:
    """The parameters of a run's folder or a safetensors file, in place of `params`; a run on a table must
    have had the same columns, because weights go by position."""
    file = path / "model.safetensors" if path.is_dir() else path
    if not file.exists():
        raise InputError(f"There is no model to start from: {file} does not exist.")
    try:
        saved, _ = checkpoint.read_tensors(file)
    except InputError:
        raise InputError(f"There is no model to start from: {file} is not a safetensors file.") from None
    prepared = path / "preprocess.json"
    if columns is not None and path.is_dir() and prepared.exists():
        theirs = Preprocessor.from_json(prepared.read_text()).feature_names
        if list(theirs) != list(columns):
            other = next((a for a, b in zip_longest(columns, theirs) if a != b), None)
            raise InputError(
                f"The model in {path} was trained on other columns, or in another order (from {other!r} on);"
                " its weights would meet the wrong ones."
            )
    return taken_over(saved, model, params, head, str(file))


def taken_over(saved: Tree, model: Model, params: Tree, head: str, where: str) -> Tree:
    """`params` with the values of a saved model; its last layer only where it is to be kept."""
    wanted = [name for name in params if head == "kept" or name not in model.head]
    wrong = [n for n in wanted if n not in saved or saved[n].shape != params[n].shape]
    if wrong:
        raise InputError(
            f"The model in {where} does not fit this run's (missing or of another shape: {some(wrong, 1)});"
            " name the same model and data"
            + (", or take only its features over with head=fresh." if set(wrong) <= set(model.head) else ".")
        )
    return params | {name: saved[name].to(params[name]) for name in wanted}


def is_only_head(model: Model, z: Tree) -> bool:
    """Whether a model has nothing but a last layer, so that a new one leaves nothing of it."""
    return all(name in model.head or name.startswith(tree.OWN) for name in tree.learned(z))
