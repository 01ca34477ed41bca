"""Unmodified scripts as ranks of a world: started here or by their own launcher, recorded from the inside.

`launcher` is the supervisor's side. `attach` runs in the script's processes: it is brought there by ``boot`` on their
``PYTHONPATH``, and leads ``torch.distributed.init_process_group`` to the harness's backend.
"""
