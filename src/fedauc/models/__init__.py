"""Models: one raw score (logit) out. Any `torch.nn.Module` that maps a batch to [B] or [B, 1] will do."""

from fedauc.models.batch_norm import BatchNorm2d
from fedauc.models.densenet import DenseNet121, DenseNet161
from fedauc.models.model import Model, Settings, init, recalibrated
from fedauc.models.resnet import ResNet18, ResNet20
from fedauc.models.small import CNN, MLP, Linear

MODELS: dict[str, type] = {
    "linear": Linear,
    "mlp": MLP,
    "cnn": CNN,
    "resnet20": ResNet20,
    "resnet18": ResNet18,
    "densenet121": DenseNet121,
    "densenet161": DenseNet161,
}

__all__ = [
    "CNN",
    "MLP",
    "MODELS",
    "BatchNorm2d",
    "DenseNet121",
    "DenseNet161",
    "Linear",
    "Model",
    "ResNet18",
    "ResNet20",
    "Settings",
    "init",
    "recalibrated",
]
