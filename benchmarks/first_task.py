"""Accuracy of the first task compared with a plain training loop that shares only the network with the package.

    python benchmarks/first_task.py --data-dir DIR RUN_DIR...

Reads the config of each run, trains its network on the classes of the first task with an independent loop (separate
reader of CIFAR-100, numpy augmentation of single images, schedule of torch), and prints both test accuracies.
"""

from __future__ import annotations

import argparse
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import yaml

from cscct.nets import build_network


def read(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    with (folder / part).open("rb") as file:
        content = pickle.load(file, encoding="latin1")
    return content["data"].reshape(-1, 3, 32, 32), np.array(content["fine_labels"])


def augment(image: np.ndarray, rng: np.random.Generator, brightness: float) -> np.ndarray:
    padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
    top, left = rng.integers(0, 9, 2)
    image = padded[:, top : top + 32, left : left + 32]
    if rng.random() < 0.5:
        image = image[:, :, ::-1]
    return np.floor(np.clip(image * rng.uniform(1 - brightness, 1 + brightness), 0, 255)) if brightness else image


def plain_training(config: dict[str, Any], folder: Path) -> float:
    train, network, data = config["train"], config["network"], config["data"]
    rng = np.random.default_rng(1000 + config["seed"])
    order = np.arange(100)
    np.random.RandomState(1993).shuffle(order)
    assert data["order"] == "seed-1993", "this loop knows one order"
    classes = order[: config["protocol"]["base"]]
    images, labels = read(folder, "train")
    chosen = np.concatenate([np.flatnonzero(labels == c)[: data["train_per_class"]] for c in classes])
    targets = np.repeat(np.arange(len(classes)), len(chosen) // len(classes))
    mean, std = (np.array(data["transform"][key], dtype=np.float32).reshape(3, 1, 1) for key in ("mean", "std"))

    seeded = torch.Generator().manual_seed(1000 + config["seed"])
    net = build_network(network["backbone"], network["depth"], 3, network["head"], network["proxies_per_class"], seeded)
    net.head.grow(net.head.init_weights(len(classes), seeded))
    optimiser = torch.optim.SGD(
        net.parameters(), train["lr"], momentum=train["momentum"], weight_decay=train["weight_decay"]
    )
    milestones = [m - train["schedule"]["offset"] for m in train["schedule"]["milestones"]]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones, train["schedule"]["factor"])
    for _ in range(train["epochs"]):
        net.train()
        shuffled = rng.permutation(len(chosen))
        for start in range(0, len(shuffled), train["batch_size"]):
            part = shuffled[start : start + train["batch_size"]]
            raw = [augment(images[chosen[i]], rng, data["transform"]["brightness"]) for i in part]
            batch = (np.stack(raw).astype(np.float32) / 255 - mean) / std
            loss = F.cross_entropy(net(torch.from_numpy(batch)).logits, torch.from_numpy(targets[part]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()

    net.eval()
    images, labels = read(folder, "test")
    right = total = 0
    with torch.no_grad():
        for target, c in enumerate(classes):
            batch = (images[labels == c].astype(np.float32) / 255 - mean) / std
            right += int((net(torch.from_numpy(batch)).logits.argmax(dim=1) == target).sum())
            total += len(batch)
    return 100 * right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, help="the folder cifar-100-python")
    parser.add_argument("runs", type=Path, nargs="+", help="run folders of replay, icarl or lucir on cifar100")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    differences = []
    for run in arguments.runs:
        config = yaml.safe_load((run / "config.yaml").read_text())
        ours = json.loads((run / "result.json").read_text())["tasks"][0]["accuracy"]["classifier"]
        plain = plain_training(config, arguments.data_dir)
        differences.append(ours - plain)
        print(f"{run.name}: cscct {ours:.1f} %, plain loop {plain:.1f} %", flush=True)
    print(f"mean difference {np.mean(differences):+.2f} points over {len(differences)} runs")


if __name__ == "__main__":
    main()
