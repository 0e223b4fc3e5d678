"""The back end: from a nest to machine code through LLVM, without a compiler on the machine."""
