"""Training of the small character transformer, see `headspan.demo.training.train`."""

from headspan.demo.config import TrainConfig
from headspan.demo.training.train import as_config, train

__all__ = ["TrainConfig", "as_config", "train"]
