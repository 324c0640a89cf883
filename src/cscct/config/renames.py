"""Settings that were renamed. The old names keep working in config files, `--set` and run folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..yamltext import Raw, merge

# `*` stands for any name at that level, as in the names of losses.
RENAMED = {
    **{f"runtime.{key}": f"numerics.{key}" for key in ("precision", "fold", "compile")},  # before 0.3
    "predict.headline": "predict.predictor",  # from here on: before 0.4
    "memory.carry": "memory.store",
    "network.trained": "network.train_backbone",
    "network.views": "network.cached_views",
    "network.rows_per_class": "network.proxies_per_class",
    "runtime.trunk_cache": "runtime.frozen_cache_dir",
    "data.cache": "data.resize_cache_px",
    "train.clamp_gradients": "train.clip_grad_value",
    "finetune.clamp_gradients": "finetune.clip_grad_value",
    "train.schedule.offset": "train.schedule.epoch_offset",
    "finetune.schedule.offset": "finetune.schedule.epoch_offset",
    "loss.*.growth": "loss.*.weight_scaling",
    "loss.balanced_cross_entropy.instead": "loss.balanced_cross_entropy.replaces_base_loss",
}
RENAMED_VALUES = {("finetune.batch_norm", "drift"): "update"}  # (setting, old value): new value


def with_new_names(layer: Mapping[str, Any]) -> Raw:
    """Return a copy of a layer in which renamed settings have their current names and values."""
    raw = merge({}, layer)
    for old, new in RENAMED.items():
        _rename(raw, old.split("."), new.split("."))
    for (path, old_value), new_value in RENAMED_VALUES.items():
        *sections, key = path.split(".")
        node: Any = raw
        for section in sections:
            node = node.get(section) if isinstance(node, dict) else None
        if isinstance(node, dict) and node.get(key) == old_value:
            node[key] = new_value
    return raw


def _rename(node: Any, old: list[str], new: list[str]) -> None:
    """Move the value at the path `old` below `node` to the path `new`, unless that is set already. Both paths have the
    same length, and sections that differ are only at the top level."""
    if not isinstance(node, dict):
        return
    if len(old) == 1:
        if old[0] in node:
            value = node.pop(old[0])
            node.setdefault(new[0], value)
    elif old[0] == "*":
        for value in node.values():
            _rename(value, old[1:], new[1:])
    elif old[0] == new[0]:
        _rename(node.get(old[0]), old[1:], new[1:])
    elif isinstance(node.get(old[0]), dict) and old[1] in node[old[0]]:
        value = node[old[0]].pop(old[1])
        if isinstance(node.setdefault(new[0], {}), dict):
            node[new[0]].setdefault(new[1], value)
