"""Other people's frameworks at the same work. `benchmarks.peers` starts them: `python -m benchmarks.workers`.

These modules run in an environment of their own: they know PyTorch and one framework, and nothing of FedAUC.
"""
