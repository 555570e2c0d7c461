"""A job with the digests of what it reads, and the checks of a job before anything is computed."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from nq.formats import inputs
from nq.inference.profile import Profile
from nq.model.folder import weights_digest
from nq.postprocess.decision import RULES, SECOND_MODEL, check_rule
from nq.preprocess.request import Request
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.runs.config import AUTO
from nq.runs.job import Job
from nq.runs.profile_choice import choose_profile


class Plan:
    """A job with a chosen profile and with its digests, which are computed once per run.

    There is a preprocessing request for each chunk of the files. ``scores`` is everything that
    scores depend on, so that runs with equal values share scores. ``choice`` tells why the profile
    was chosen, if that of the job was ``auto``.
    """

    def __init__(self, job: Job, requests: tuple[Request, ...] | None = None) -> None:
        """Reads the input files and the weights for their digests."""
        self.choice = ""
        if job.profile == AUTO:
            profile, self.choice = choose_profile(job)
            job = replace(job, profile=profile)
        self.job, self.requests = job, requests or job.requests()
        rule, decision = RULES[job.model.decision.rule], job.model.decision.to_dict()
        self.scores: dict[str, Any] = {
            "windows": "+".join(request.key for request in self.requests),
            "weights": weights_digest(job.model.folder),
            "profile": str(job.profile),
            "batch_size": job.compute.batch_size,
            "positions": [rule.k, rule.text_only],
            **({} if job.compute.threads is None else {"threads": job.compute.threads}),
            **({} if job.beam is None else {"runner": job.beam.runner}),
            **({"decision": decision} if job.optimizations.needs_ranking else {}),
        }
        second, cascade = job.model.second, job.model.cascade
        if second is not None and cascade is not None:
            tokenizer = load_tokenizer(second.folder, second.windows.compat)
            self.scores["second_model"] = {
                "weights": weights_digest(second.folder),
                "tokenizer": tokenizer_digest(tokenizer),
                "windows": second.windows.to_dict(),
                "read_blocks": cascade.read_blocks,
                "first": cascade.first.to_dict(),
            }
        text = orjson.dumps([self.scores, decision], option=orjson.OPT_SORT_KEYS)
        name = f"{job.profile}-{hashlib.sha256(text).hexdigest()[:10]}"
        self.folder = job.output or job.root / name

    @property
    def description(self) -> dict[str, Any]:
        """The job with the digests of what it reads, as ``job.json`` has it."""
        described = [request.description for request in self.requests]
        files = [file for description in described for file in description["inputs"]]
        return {"job": self.job.to_dict(), "request": {**described[0], "inputs": files}}

    @property
    def mlflow_file(self) -> Path:
        """The file with the id of the MLflow run, which only an equal unfinished job continues."""
        text = json.dumps(self.description, sort_keys=True)  # names may be no UTF-8
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.mlflow_run"


def windows_folder(parent: Path, request: Request) -> Path:
    """Returns the folder of a request's windows, which runs of equal settings share.

    The ``parent`` is the folder of the run if the user named it, else that of all runs.
    """
    return parent / f"windows-{request.key}"


def check_job(job: Job) -> None:
    """Checks what can be checked before TensorFlow is imported, also if the profile is "auto".

    With a runner of Beam the workers compute, and the input files are checked by ``BeamRun``.
    """
    rule = job.model.decision.rule
    if isinstance(job.profile, Profile):
        check_rule(rule, job.profile.needs_ranking)
        if job.beam is None:
            job.profile.require()
    if job.beam is None:
        inputs.check_inputs(job.files, job.limit, job.pages)
    if job.model.second is not None:
        check_rule(rule, SECOND_MODEL)
    job.model.check()
