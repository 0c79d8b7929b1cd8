"""How fast FedAUC is, and how it scales. `python -m benchmarks` and `python -m benchmarks scale`."""
