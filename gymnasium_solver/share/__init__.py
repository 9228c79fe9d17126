"""Sharing runs: export as ONNX or C, the Hugging Face Hub, and models of other libraries."""
