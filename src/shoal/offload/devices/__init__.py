"""Devices with memory of their own: what they must do, how a program runs on one page by page, and PyTorch's."""
