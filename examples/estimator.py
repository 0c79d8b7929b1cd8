"""scikit-learn's face: breast tumours measured at ten hospitals that may not pool them.

python examples/estimator.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from fedauc import FederatedAUCClassifier

tumours = load_breast_cancer(as_frame=True)
malignant = np.where(tumours.target == 0, "malignant", "benign")
hospital = np.random.default_rng(0).choice([f"hospital-{i}" for i in range(10)], len(malignant))
X, X_new, y, y_new, where, _ = train_test_split(tumours.data, malignant, hospital, random_state=0)

model = FederatedAUCClassifier(method="cycp-pairwise", random_state=0).fit(X, y, clients=where)
auc = roc_auc_score(y_new == model.classes_[1], model.decision_function(X_new))
print(f"test AUC {auc:.4f} after {model.rounds_} rounds, {model.bytes_up_ + model.bytes_down_} bytes")
