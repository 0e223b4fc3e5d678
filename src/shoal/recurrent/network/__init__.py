"""Whole networks: graphs of recurrent nodes and of segments that ONNX Runtime runs, read from files, run, and kept."""
