"""Parameter-size vectors: arrays where they are short, tensors in blocks where not."""
