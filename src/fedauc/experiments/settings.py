"""Settings of an experiment that belong to no component: the data and the training itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedauc.core.averaging import Output
from fedauc.core.weighting import Balance, ClientWeight
from fedauc.data.augment import Augment
from fedauc.errors import InputError
from fedauc.models.model import Precision
from fedauc.transports.local import Mode

Statistics = Literal["averaged", "local", "recalibrated"]


@dataclass(frozen=True)
class DataSettings:
    """Where the rows come from, who owns them, and how they are split."""

    source: str | None = None
    """A named data set (`fedauc datasets`), instead of files."""
    path: tuple[str, ...] = ()
    """CSV or Parquet files; several without a client column are one file per client."""
    label: str | None = None
    """The column that says which rows are positive."""
    client: str | None = None
    """The column that says which client a row belongs to."""
    positive: str | None = None
    """The label's positive value (files) or class (named data sets)."""
    drop: tuple[str, ...] = ()
    """Columns that are not used."""
    valid: str | None = None
    """A file with the validation rows."""
    test: str | None = None
    """A file with the test rows."""
    split_by: str | None = None
    """Split by this column's order (time): oldest rows train, newest test."""
    valid_fraction: float = 0.15
    """Share of the rows for validation; 0.1 for named data sets that publish a test set."""
    test_fraction: float = 0.25
    """Share of the rows for the test, where no test set is given."""
    small_clients: Literal["error", "merge", "keep"] = "error"
    """What happens to clients with a single row."""
    root: str | None = None
    """The folder of published data files (default: FEDAUC_DATA or the user's cache)."""
    download: bool = False
    """Download published files that are missing."""
    rows: int | None = None
    """Rows of a generated data set."""
    image_size: int | None = None
    """Height and width that images in files of their own are brought to; where not said, the data set's own
    choice."""
    memory_map: Literal["auto", "on", "off"] = "auto"
    """Prepare the rows into a file once and map it instead of holding them in memory (Parquet and .npy);
    auto: where they take more than half a GiB."""
    remove_positives: float = 0.0
    """Share of the training positives that is removed."""
    flip_positives: float = 0.0
    """Share of the training positives whose label is flipped to negative."""
    partition: str | None = None
    """Deal the rows to clients: iid, dirichlet, disjoint-classes, one-class-per-client, label-sorted."""
    clients: int = 100
    """Clients of a partition."""
    alpha: float = 0.5
    """Concentration of the Dirichlet partition; smaller is more uneven."""
    classes_per_client: int | None = None
    """Classes of a client in the disjoint-classes partition."""
    shards_per_client: int = 2
    """Shards of a client in the label-sorted partition."""

    def __post_init__(self) -> None:
        for name in ("valid_fraction", "test_fraction", "remove_positives", "flip_positives"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"data.{name}={getattr(self, name)} must be at least 0 and below 1.")
        if self.valid_fraction + self.test_fraction >= 1:
            raise InputError("data.valid_fraction and data.test_fraction together leave no training rows.")
        if self.clients < 1:
            raise InputError(f"data.clients={self.clients} must be at least 1.")


@dataclass(frozen=True)
class TrainSettings:
    """How the federation trains, whatever the method."""

    batch: int = 32
    """B, examples of a local step."""
    client_weight: ClientWeight = "examples"
    """What a client counts for: its examples (the pooled AUC), their square root, or uniform (the papers)."""
    balance: Balance = "aggregate"
    """Carry the clients' class shares out in the average (bounded local steps) or in the local objective."""
    output: Output = "ema"
    """The model: the last iterate, a stage's average, or the moving average over `memory` cycles."""
    memory: float = 1.0
    """Horizon of the moving average, in cycles."""
    init_from: str | None = None
    """A run's folder or a safetensors file to start from."""
    warmup: str | None = None
    """A method that trains first; this one goes on from its model."""
    warmup_cycles: int = 20
    """Cycles of the method that trains first."""
    head: Literal["kept", "fresh", "zero"] = "kept"
    """The last layer at the start: as in the model that is started from, drawn anew, or zero, so that all
    rows begin with the same score."""
    statistics: Statistics = "averaged"
    """Running statistics of batch normalisation: averaged like the model, kept by each client, or computed
    anew for every model that is validated."""
    augment: Augment | None = None
    """Training images, seen anew in every step: `crop-flip` moves them by up to 4 pixels and mirrors half of
    them."""
    eval_every: int | None = None
    """Validate every so many rounds; once a cycle where not said."""
    mode: Mode = "auto"
    """Clients of a round at once (vmap), each on a CUDA stream (streams), or one after another (loop); auto
    is vmap on a CPU and what is measured to be fastest on a GPU."""
    compile: bool | None = None
    """Compile the local steps; where not said, if the run is estimated to take more than half a minute (on a
    GPU two minutes)."""
    precision: Precision = "float32"
    """Arithmetic of the model in training: float32 is exact, tf32 and bfloat16 are faster on a GPU."""
    chunk: int = 256
    """At most so many clients at once."""
    parts: int = 1
    """Parts of a round's clients that are computed by themselves (1, 2 or 4): with as many, one process gets
    the bits of two or four."""
    threads: int | None = None
    """CPU threads; where not said one for small models, else all."""

    def __post_init__(self) -> None:
        if self.init_from is not None and self.warmup is not None:
            raise InputError("train.init_from and train.warmup both say where to start; choose one.")
        if self.head == "fresh" and self.init_from is None and self.warmup is None:
            raise InputError("train.head=fresh needs a model to start from (init_from or warmup).")
        for name in ("eval_every", "threads", "chunk", "warmup_cycles"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"train.{name}={value} must be at least 1.")
        if self.parts not in (1, 2, 4):
            raise InputError(f"train.parts={self.parts} must be 1, 2 or 4.")
        if self.memory <= 0:
            raise InputError(f"train.memory={self.memory} must be positive.")
