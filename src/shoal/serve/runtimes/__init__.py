"""What can run a model, all behind the one interface of `base.Runtime`: ONNX Runtime, Python callables, scikit-learn
and torch.

`open.open_runtime` chooses by a model's `RuntimeKind`, checks the file before anything looks into it, and says what
loading cost. Nothing that is loaded from a file may bring code along: no pickles, no libraries of custom operators.
The heavy packages are imported only when a model needs them.
"""
