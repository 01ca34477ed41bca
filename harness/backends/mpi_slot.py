"""What `harness.backends.mpi_job` has mpiexec start: hands its place in the job over to a rank, and holds it.

Run as a script, ``mpi_slot.py FOLDER``, without site packages; ends when the rank does.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def main(folder: str) -> None:
    """Give environment and connection to the rank that listens at FOLDER/RANK, then wait for its end."""
    place = {name: value for name, value in os.environ.items() if name.startswith(("PMI", "MPI_LOCAL", "HYDI_"))}
    with socket.socket(socket.AF_UNIX) as rank:
        rank.connect(os.path.join(folder, os.environ["PMI_RANK"]))
        socket.send_fds(rank, [json.dumps(place).encode()], [int(os.environ["PMI_FD"])])
        rank.recv(1)


if __name__ == "__main__":
    main(sys.argv[1])
