"""What one of the workshop's containers runs: JupyterLab, TensorBoard, and sshd for the other node."""
