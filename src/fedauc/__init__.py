"""FedAUC: federated learning for rare events."""
