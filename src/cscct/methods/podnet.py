"""PODNet (Douillard et al., ECCV 2020), CNN variant: pooled maps distilled, ten proxies a class, a balanced stage."""

from .base import Method, register

PODNET = register(
    Method(
        name="podnet",
        summary="pooled-outputs distillation, multi-proxy classifier, balanced fine-tuning",
        settings={
            "network": {"head": "proxies", "rows_per_class": 10, "imprint": "kmeans", "freeze_old": True},
            "loss": {
                "nca": {"margin": 0.6, "form": "official"},
                "pod_spatial": {"weight": 3.0, "growth": "sqrt_seen_over_new"},
                "pod_flat": {"weight": 1.0, "growth": "sqrt_seen_over_new"},
            },
            "train": {"clamp_gradients": 5.0},
            "finetune": {"epochs": 20, "lr": 0.05, "batch_norm": "drift", "clamp_gradients": 5.0},
            "predict": {"headline": "classifier"},
        },
        additions={"balanced_cross_entropy": {"instead": True}},
    )
)
