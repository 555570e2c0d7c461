"""``nq ui``: MLflow's pages of the recorded runs, with time and quality of all in sight."""

import argparse
import json
import logging
import shlex
import socket
import subprocess
import time
import webbrowser

from nq import extras, tracking
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.mlflow_store import connect, database_path, experiment_name, reason, store
from nq.text import visible, without_password
from nq.worker import ROOT, Worker, run_module

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PAUSE_S = 0.2
VIEW = "nq"
"""A saved view of an experiment: which columns MLflow's table of runs has, and their order."""
VIEW_TAG = f"mlflow.sharedViewState.{VIEW}"
COLUMNS = {
    "attributes.`Run Name`": 300,
    "runDateAndNestInfo": 80,
    f"metrics.`{tracking.QUESTIONS}`": 80,
    f"metrics.`{tracking.MICRO_F1}`": 75,
    f"metrics.`{tracking.PREDICT_S}`": 80,
    f"tags.`{tracking.SPEED_COMPARABLE}`": 140,
    f"params.`{tracking.PROFILE}`": 150,
    "attributes.`Dataset`": 135,
    f"metrics.`{tracking.WINDOWS_PER_S}`": 115,
    f"metrics.`{tracking.SIZE_MB}`": 80,
    f"metrics.`{tracking.CHANGED}`": 130,
}
"""Their order and widths; of 1,500 pixels MLflow leaves 1,170, with its assistant open 790."""
DATASET = {"mode": "dataset", "groupByData": "dataset"}
VIEW_STATE = {
    "selectedColumns": [*COLUMNS],
    "columnOrder": [*COLUMNS],
    "columnWidths": COLUMNS,
    "groupBy": {"aggregateFunction": "average", "groupByKeys": [DATASET]},
    "groupsExpanded": {"dataset.dataset": True},  # of the runs without one, such as trainings
    "useGroupedValuesInCharts": False,
    "orderByKey": f"metrics.`{tracking.WINDOWS_PER_S}`",
    "orderByAsc": False,
}
MODELS = "/#/experiments/{}/models?viewMode=CHART&workflowType=machine_learning"
"""Page of the models; their table begins with 1,300 pixels that no address can leave out."""


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq ui",
        description="Starts MLflow's server on the store of the recorded runs and prints the "
        "addresses of their table and of the charts of their models. Ctrl-C ends it.",
        examples=("nq ui --open", "nq ui --experiment profiles --port 5001"),
    )
    parser.flag("open", "open the table in a browser")
    text = "of the server (default: 5000)"
    parser.add_argument(
        "--port",
        type=arguments.positive,
        default=5000,
        metavar="N",
        help=text,
    )
    arguments.add_tracking(parser, records=False)
    arguments.add_verbose(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    extras.require("mlflow")
    uri = store(args.tracking_uri)
    experiment = _experiment(uri, args.experiment)
    if uri.startswith("http"):
        _show(without_password(uri).rstrip("/"), experiment, args.open)
        return 0
    address = f"http://{HOST}:{args.port}"
    if _accepts(args.port):
        raise Error(f"port {args.port} is in use: give another --port")
    command = ["server", "--host", HOST, "--port", str(args.port), "--workers", "1"]
    # otherwise the server, and the process of its jobs, import Python files of the working folder
    command += ["--uvicorn-opts", shlex.join(["--app-dir", ROOT])]
    output = None if args.verbose else subprocess.DEVNULL
    variables = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    variables["MLFLOW_BACKEND_STORE_URI"] = uri  # all users may read the arguments of a process
    server = Worker(
        run_module,
        name="the server of MLflow",
        variables=variables,
        output=output,
    )
    try:
        server.wait()
        server.send(["mlflow", *command])
        while not _accepts(args.port):
            if server.has_message():
                raise Error("MLflow's server has ended: give --verbose to see why")
            time.sleep(PAUSE_S)
        _show(address, experiment, args.open)
        server.process.wait()
    finally:
        server.end()
    return 0


def _experiment(uri: str, name: str | None) -> str:
    """Returns the id of an experiment; saves the view of its columns in MLflow."""
    path = database_path(uri)
    try:
        if path and not path.exists():
            raise FileNotFoundError("there is no database")
        log.info("starting MLflow …")  # to import it may take a minute
        client = connect(uri)
        name = experiment_name(client, name)
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            names = ", ".join(sorted(e.name for e in client.search_experiments())) or "none"
            raise LookupError(f"there is no experiment {name!r}, only {names}")
        state = json.dumps(VIEW_STATE)
        if experiment.tags.get(VIEW_TAG) != state:
            client.set_experiment_tag(experiment.experiment_id, VIEW_TAG, state)
    except Exception as error:
        raise Error(
            f"cannot read the runs in {without_password(uri)}: {reason(error, uri)}; give the "
            "store of your runs as --tracking-uri, their experiment as --experiment"
        ) from error
    return str(experiment.experiment_id)


def _accepts(port: int) -> bool:
    """Returns whether a server accepts connections at a port."""
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0


def _show(address: str, experiment: str, in_browser: bool) -> None:
    runs = f"{address}{tracking.PAGE.format(experiment, '')}&viewStateShareKey={VIEW}"
    print(visible(f"{runs}\n{address}{MODELS.format(experiment)}", True), flush=True)
    if in_browser:
        webbrowser.open(runs)
