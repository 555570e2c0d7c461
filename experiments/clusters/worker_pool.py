"""A pool of Beam workers at one address of this machine.

    python -m experiments.clusters.worker_pool 127.0.1.1:50000

Beam's own command, ``python -m apache_beam.runners.worker.worker_pool_main --service_port=50000``,
listens at all addresses, so that there is one of it on a machine. This is the same pool for one.
"""

import logging
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer


def main(argv: list[str] | None = None) -> int:
    """Serves until it is ended; each worker is a process."""
    (address,) = argv if argv is not None else sys.argv[1:]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    server = grpc.server(ThreadPoolExecutor(), options=[("grpc.so_reuseport", 0)])
    server.add_insecure_port(address)
    pool = BeamFnExternalWorkerPoolServicer(use_process=True, data_buffer_time_limit_ms=-1)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()
    server.wait_for_termination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
