"""Copies of a sweep's covered results in TensorBoard, MLflow or Weights & Biases, for those who read results there."""
