"""Reference implementations in plain loops, written from the formulas.

Arrays are numpy, float64. `vector("csc/value")` reads one of the agreed values in vectors.json.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

Array = np.ndarray
VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text())


def is_leaf(node: Any) -> bool:
    """A value, or a table whose keys are numbers (epochs, classes)."""
    return not isinstance(node, dict) or all(key.isdigit() for key in node)


def leaves(node: Any = VECTORS, path: str = "") -> Iterator[str]:
    for key, below in node.items():
        if is_leaf(below):
            yield path + key
        else:
            yield from leaves(below, f"{path}{key}/")


def vector(path: str) -> Any:
    node = VECTORS
    for key in path.split("/"):
        node = node[key]
    if not is_leaf(node):
        raise KeyError(f"{path} holds several values; name one of them")
    return node


def array(path: str) -> Array:
    return np.array(vector(path))


def tensor(path: str) -> torch.Tensor:
    return torch.from_numpy(array(path))


# How a fast version is compared with a slow one


def numeric_gradient(function: Callable[[], float], at: Array, step: float = 1e-6) -> Array:
    """Central differences of a function that reads `at`."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        kept = at[index]
        at[index] = kept + step
        above = function()
        at[index] = kept - step
        gradient[index] = (above - function()) / (2 * step)
        at[index] = kept
    return gradient


def compare(fast: Callable[..., torch.Tensor], slow: Callable[..., float], *arrays: Array) -> None:
    """`fast` of tensors is `slow` of arrays, in value and in the gradient to each of them."""
    inputs = [torch.tensor(array, requires_grad=True) for array in arrays]
    value = fast(*inputs)
    assert value.shape == ()
    assert value.dtype == torch.float64
    np.testing.assert_allclose(value.item(), slow(*arrays), rtol=0, atol=1e-10)
    value.backward()
    for leaf, array in zip(inputs, arrays, strict=True):
        assert leaf.grad is not None
        np.testing.assert_allclose(leaf.grad, numeric_gradient(lambda: slow(*arrays), array), rtol=1e-5, atol=1e-8)


# Losses


def length(a: Array) -> float:
    return math.sqrt(sum(float(x) * float(x) for x in a))


def dot(a: Array, b: Array) -> float:
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def cosine(a: Array, b: Array) -> float:
    return dot(a, b) / (max(length(a), 1e-8) * max(length(b), 1e-8))


def cosines(a: Array, b: Array) -> Array:
    return np.array([[cosine(x, y) for y in b] for x in a])


def softmax(row: Array) -> Array:
    powers = [math.exp(x - max(row)) for x in row]
    return np.array([power / sum(powers) for power in powers])


def divergence(p: Array, q: Array) -> float:
    """Σ p (log p − log q) of two distributions."""
    return sum(x * (math.log(x) - math.log(y)) for x, y in zip(p, q, strict=True))


def csc(student: Array, teacher: Array, labels: Array) -> float:
    k = len(student)
    total = 0.0
    for i in range(k):
        for j in range(k):
            sign = 1 if labels[i] == labels[j] else -1
            total += sign * (1 - cosine(student[i], teacher[j]))
    return total / k**2


def ct_shares(features: Array, is_new: Array, temperature: float, *, literal: bool = False) -> Array:
    """A row for each new sample: how it shares its similarity among the old ones."""
    rows = []
    for new in features[is_new]:
        z = np.array([cosine(new, old) for old in features[~is_new]]) / temperature
        rows.append(z / sum(z) if literal else softmax(z))
    return np.array(rows)


def ct(student: Array, teacher: Array, is_new: Array, temperature: float = 2.0, form: str = "official") -> float:
    p, q = int(sum(is_new)), int(sum(~is_new))
    if p == 0 or q == 0:
        return 0.0
    student_shares = ct_shares(student, is_new, temperature, literal=form == "literal")
    teacher_shares = ct_shares(teacher, is_new, temperature, literal=form == "literal")
    if form in ("paper", "literal"):
        return sum(divergence(s, t) for s, t in zip(student_shares, teacher_shares, strict=True)) / p
    total = sum(divergence(t, s) for s, t in zip(student_shares, teacher_shares, strict=True)) * temperature**2
    return total / (p * q) if form == "official" else total / p


def less_forget(student: Array, teacher: Array) -> float:
    return sum(1 - cosine(s, t) for s, t in zip(student, teacher, strict=True)) / len(student)


def margin_ranking(scores: Array, labels: Array, n_old: int, k: int = 2, margin: float = 0.5) -> float:
    values = []
    for row, label in zip(scores, labels, strict=True):
        if label < n_old:
            hardest = sorted(row[n_old:], reverse=True)[:k]
            values += [max(0.0, margin - (row[label] - other)) for other in hardest]
    return sum(values) / len(values) if values else 0.0


def cross_entropy(logits: Array, labels: Array) -> float:
    return -sum(math.log(softmax(row)[y]) for row, y in zip(logits, labels, strict=True)) / len(logits)


def balanced_cross_entropy(logits: Array, labels: Array, counts: Array) -> float:
    total = 0.0
    for row, y in zip(logits, labels, strict=True):
        total -= math.log(counts[y] * math.exp(row[y]) / sum(n * math.exp(s) for n, s in zip(counts, row, strict=True)))
    return total / len(logits)


def logit_distillation(logits: Array, teacher: Array, temperature: float = 2.0) -> float:
    n_old = teacher.shape[1]
    return sum(
        divergence(softmax(t / temperature), softmax(s[:n_old] / temperature))
        for s, t in zip(logits, teacher, strict=True)
    ) / len(logits)


def weighted_cross_entropy(logits: Array, labels: Array, is_new: Array, n_old: int) -> float:
    """A mean over samples in which the old samples of a batch count 1, and the new ones so that each class has the same
    total on average."""
    per_old, per_new = sum(~is_new) / n_old, sum(is_new) / (logits.shape[1] - n_old)
    weights = [per_old / per_new if new else 1.0 for new in is_new]
    losses = [cross_entropy(logits[i : i + 1], labels[i : i + 1]) for i in range(len(labels))]
    return sum(w * loss for w, loss in zip(weights, losses, strict=True)) / sum(weights)


def logit_replay(logits: Array, stored: Array) -> float:
    squares = []
    for i in range(stored.shape[0]):
        for j in range(stored.shape[1]):
            if not math.isnan(stored[i, j]):
                squares.append((logits[i, j] - stored[i, j]) ** 2)
    return sum(squares) / len(squares)


def bce_distillation(logits: Array, teacher: Array | None, labels: Array) -> float:
    total = 0.0
    for i, row in enumerate(logits):
        for j, logit in enumerate(row):
            target = float(labels[i] == j)
            if teacher is not None and j < teacher.shape[1]:
                target = 1 / (1 + math.exp(-teacher[i, j]))
            guess = 1 / (1 + math.exp(-logit))
            total -= target * math.log(guess) + (1 - target) * math.log(1 - guess)
    return total / logits.size


def pod_profile(array: Array) -> Array:
    """One map (c, h, w): the squares summed along the width, then along the height, as a unit vector."""
    channels, height, width = array.shape
    rows = [sum(array[c, i, j] ** 2 for j in range(width)) for c in range(channels) for i in range(height)]
    columns = [sum(array[c, i, j] ** 2 for i in range(height)) for c in range(channels) for j in range(width)]
    profile = np.array(rows + columns)
    return profile / max(length(profile), 1e-12)


def pod_spatial(student_maps: Sequence[Array], teacher_maps: Sequence[Array]) -> float:
    layers = []
    for student, teacher in zip(student_maps, teacher_maps, strict=True):
        apart = [length(pod_profile(t) - pod_profile(s)) for s, t in zip(student, teacher, strict=True)]
        layers.append(sum(apart) / len(apart))
    return sum(layers) / len(layers)


def nca(similarities: Array, labels: Array, scale: float = 1.0, margin: float = 0.6, form: str = "official") -> float:
    total = 0.0
    for row, label in zip(similarities, labels, strict=True):
        others = [j for j in range(len(row)) if j != label]
        if form == "official":
            s = [scale * (x - margin) for x in row]
            s = [x - max(s) for x in s]
            total += -s[label] + math.log(1 + sum(math.exp(s[j]) for j in others))
        elif others:
            negatives = math.log(sum(math.exp(scale * row[j]) for j in others))
            total += max(0.0, negatives - scale * (row[label] - margin))
    return total / len(similarities)


# Heads, memory, metrics


def lsc_raw(features: Array, proxies: Array) -> Array:
    """−‖f̂ − ŵ‖² for each feature and proxy."""
    return np.array([[-(length(f / length(f) - w / length(w)) ** 2) for w in proxies] for f in features])


def lsc(features: Array, proxies: Array, per_class: int) -> Array:
    """Class scores of the multi-proxy head."""
    raw = lsc_raw(features, proxies)
    groups = [range(start, start + per_class) for start in range(0, len(proxies), per_class)]
    return np.array([[dot(softmax(row[group]), row[group]) for group in groups] for row in raw])


def units(features: Array) -> Array:
    return np.array([row / length(row) for row in features])


def herd_official(features: Array, count: int, limit: int = 1000) -> tuple[list[int], list[int]]:
    """Ranks, and every pick on the way, those that were made again included."""
    d = units(features)
    mean = d.sum(axis=0) / len(d)
    w = mean.copy()
    ranks: list[int] = []
    picks: list[int] = []
    while len(ranks) < min(count, len(d)) and len(picks) < limit:
        products = [dot(w, row) for row in d]
        best = products.index(max(products))  # the first, where several are equal
        picks.append(best)
        if best not in ranks:
            ranks.append(best)
        w = w + mean - d[best]
    return ranks, picks


def herd_icarl(features: Array, count: int) -> list[int]:
    d = units(features)
    mean = d.sum(axis=0) / len(d)
    ranks: list[int] = []
    for k in range(1, min(count, len(d)) + 1):
        chosen = sum((d[i] for i in ranks), np.zeros(d.shape[1]))
        left = [i for i in range(len(d)) if i not in ranks]
        ranks.append(min(left, key=lambda i: length(mean - (d[i] + chosen) / k)))
    return ranks


def class_mean(features: Array, varied: Array | None = None) -> Array:
    mean = sum(units(features)) / len(features)
    if varied is not None:
        mean = (mean + sum(units(varied)) / len(varied)) / 2
    return mean / length(mean)


def squared_distances(features: Array, means: Array) -> Array:
    return np.array([[length(f - mean) ** 2 for mean in means] for f in units(features)])


def forgetting_per_task(matrix: Sequence[Sequence[float]]) -> list[float]:
    last = len(matrix) - 1
    return [max(matrix[t][k] for t in range(k, last)) - matrix[last][k] for k in range(last)]


def harmonic_mean(matrix: Sequence[Sequence[float]], sizes: Sequence[int]) -> float | None:
    """From counts of correct images: the harmonic mean of old and new accuracy after each task but the first."""
    means = []
    for row in matrix[1:]:
        correct = [accuracy / 100 * size for accuracy, size in zip(row, sizes, strict=False)]
        old, new = sum(correct[:-1]) / sum(sizes[: len(row) - 1]), correct[-1] / sizes[len(row) - 1]
        means.append(100 / ((1 / old + 1 / new) / 2))
    return sum(means) / len(means) if means else None


def summarize(matrix: Sequence[Sequence[float]], sizes: Sequence[int]) -> dict[str, float | None]:
    tasks = len(matrix)
    seen = []
    for t in range(tasks):
        right = sum(matrix[t][k] * sizes[k] for k in range(t + 1))
        seen.append(right / sum(sizes[k] for k in range(t + 1)))
    apt = forgetting = None
    if tasks > 1:
        apt = sum(sum(matrix[t][k] for k in range(t)) / t for t in range(1, tasks)) / (tasks - 1)
        forgetting = sum(forgetting_per_task(matrix)) / (tasks - 1)
    return {
        "harmonic_mean": harmonic_mean(matrix, sizes),
        "average_incremental_accuracy": sum(seen) / tasks,
        "apt": apt,
        "act": sum(matrix[t][t] for t in range(tasks)) / tasks,
        "forgetting": forgetting,
        "last_accuracy": seen[-1],
    }


# Importances, projections and rectified probabilities


def mean_over_images(
    scalar: Callable[[int], float], at: Array, images: int, function: Callable[[float], float]
) -> Array:
    """Mean over images of a function of the gradient of `scalar(image)`, which reads `at`."""
    total = np.zeros_like(at)
    for image in range(images):
        gradient = numeric_gradient(lambda: scalar(image), at)  # noqa: B023
        for index in np.ndindex(at.shape):
            total[index] += function(float(gradient[index]))
    return total / images


def path_importance(gradients: Sequence[Array], positions: Sequence[Array], damping: float) -> Array:
    """Importances of SI from the gradient at each position of a path, which has one more position."""
    result = np.zeros_like(positions[0])
    for index in np.ndindex(result.shape):
        share = -sum(
            gradients[k][index] * (positions[k + 1][index] - positions[k][index]) for k in range(len(gradients))
        )
        result[index] = max(0.0, share / ((positions[-1][index] - positions[0][index]) ** 2 + damping))
    return result


def parameter_drift(importance: Array, now: Array, before: Array) -> float:
    return sum(float(importance[i]) * float(now[i] - before[i]) ** 2 for i in np.ndindex(now.shape)) / 2


def project(gradient: Array, reference: Array) -> Array:
    product = dot(gradient, reference)
    return gradient if product >= 0 else gradient - product / dot(reference, reference) * reference


def task_distillation(logits: Array, teacher: Array, tasks: Sequence[range], temperature: float = 2.0) -> float:
    return sum(logit_distillation(logits[:, list(task)], teacher[:, list(task)], temperature) for task in tasks)


def il2m_factors(initial: Sequence[tuple[Array, Array]], memory: tuple[Array, Array]) -> dict[int, float]:
    """Factors of the old classes. initial: for each task, probabilities and labels of its images when it was learned;
    memory: those of the exemplars now."""
    now = {c: [p[y] for p, y in zip(*memory, strict=True) if y == c] for c in set(memory[1].tolist())}
    confidence = [sum(max(p) for p in rows) / len(rows) for rows, _ in initial]
    factors = {}
    for (rows, labels), confidence_then in zip(initial[:-1], confidence, strict=False):
        for c in sorted(set(labels.tolist())):
            then = [p[c] for p, y in zip(rows, labels, strict=True) if y == c]
            change = (sum(then) / len(then)) / (sum(now[c]) / len(now[c]))
            factors[c] = change * confidence[-1] / confidence_then
    return factors


def ranpac(features: Sequence[Array], projection: Array, penalty: float) -> Array:
    """The output weights of RanPAC, (M, classes), with G and C accumulated sample by sample."""
    width = projection.shape[1]
    gram, products = np.zeros((width, width)), np.zeros((width, len(features)))
    for label, rows in enumerate(features):
        for row in rows:
            hidden = np.array([max(0.0, dot(row, column)) for column in projection.T])
            gram += np.outer(hidden, hidden)
            products[:, label] += hidden
    return np.linalg.solve(gram + penalty * np.eye(width), products)


def fecam(
    features: Sequence[Array],
    queries: Array,
    power: float = 0.5,
    diagonal: float = 1.0,
    off_diagonal: float = 1.0,
    passes: int = 2,
) -> Array:
    """The squared distances of FeCAM, (queries, classes), with full covariance matrices."""
    distances = np.zeros((len(queries), len(features)))
    for label, rows in enumerate(features):
        covariance = np.cov((np.sign(rows) * np.abs(rows) ** power).T)
        identity = np.eye(len(covariance))
        for _ in range(passes):
            mean_variance, mean_covariance = np.diag(covariance).mean(), covariance[identity == 0].mean()
            covariance = covariance + diagonal * mean_variance * identity
            covariance += off_diagonal * mean_covariance * (1 - identity)
        deviations = np.sqrt(np.diag(covariance))
        inverse = np.linalg.inv(covariance / np.outer(deviations, deviations))
        mean, *units_of_queries = (
            vector / length(vector)
            for vector in (np.sign(x) * np.abs(x) ** power for x in (rows.mean(axis=0), *queries))
        )
        for index, query in enumerate(units_of_queries):
            distances[index, label] = (query - mean) @ inverse @ (query - mean)
    return distances


def separated_cross_entropy(logits: Array, labels: Array, n_old: int) -> float:
    """Cross-entropy of SS-IL, with the softmax over the old or the new classes."""
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        part = row[n_old:] if label >= n_old else row[:n_old]
        total += math.log(sum(math.exp(score) for score in part)) - row[label]
    return total / len(labels)


def effective_weights(counts: Array, beta: float) -> Array:
    """Class weights of FOSTER, with a mean of 1."""
    weights = np.array([1 / sum(beta**i for i in range(int(count))) for count in counts])
    return weights / weights.mean()


def balanced_distillation(logits: Array, teacher: Array, counts: Array, beta: float = 0.97, t: float = 2.0) -> float:
    """Distillation of the compression of FOSTER, over the classes that the teacher knows."""
    known = teacher.shape[1]
    weights, total = effective_weights(counts, beta)[:known], 0.0
    for student_row, teacher_row in zip(logits[:, :known], teacher, strict=True):
        targets = softmax(teacher_row / t) * weights
        total -= float((targets / targets.sum() * np.log(softmax(student_row / t))).sum())
    return total / len(logits)


def class_decorrelation(features: Array, labels: Array) -> float:
    """Mean squared entry of the correlation matrices outside the diagonal (CwD)."""
    total, samples = 0.0, 0
    for label in set(labels.tolist()):
        rows = features[labels == label]
        if len(rows) < 2:
            continue
        rows = (rows - rows.mean(axis=0)) / np.sqrt(1e-8 + rows.var(axis=0, ddof=1))
        correlations = rows.T @ rows
        total += float((correlations[~np.eye(len(correlations), dtype=bool)] ** 2).mean())
        samples += len(rows)
    return total / max(samples, 1)


def similarity_shares(vectors: Array, temperature: float) -> Array:
    """Softmax of the cosines of each vector to all others; 0 to itself."""
    shares = np.zeros((len(vectors), len(vectors)))
    for i in range(len(vectors)):
        others = [j for j in range(len(vectors)) if j != i]
        shares[i, others] = softmax(np.array([cosine(vectors[i], vectors[j]) / temperature for j in others]))
    return shares


def asymmetric_contrast(vectors: Array, labels: Array, is_new: Array, temperature: float = 0.5) -> float:
    shares, total = similarity_shares(vectors, temperature), 0.0
    for i in range(len(vectors)):
        same = [j for j in range(len(vectors)) if j != i and labels[j] == labels[i]]
        if is_new[i]:
            total -= sum(math.log(shares[i, j]) for j in same) / len(same)
    return total / len(vectors)


def relation_distillation(student: Array, teacher: Array, temperature: float, teacher_temperature: float) -> float:
    p, q = similarity_shares(teacher, teacher_temperature), similarity_shares(student, temperature)
    pairs = [(i, j) for i in range(len(p)) for j in range(len(p)) if i != j]
    return -sum(float(p[i, j]) * math.log(q[i, j]) for i, j in pairs) / len(p)


def channel_distance(student: Array, teacher: Array, importance: Array) -> float:
    total = 0.0
    for k, c in np.ndindex(student.shape[:2]):
        a, b = (maps[k, c].ravel() ** 2 for maps in (student, teacher))
        total += float(importance[c]) * length(a / length(a) - b / length(b))
    return total / (student.shape[0] * student.shape[1])
