"""Program files run for real: the same calls through torch.distributed, in every rank of a world."""
