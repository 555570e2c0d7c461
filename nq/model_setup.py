"""A model with its settings, found and checked, and not loaded yet.

``nq.load`` loads it in this process, ``nq serve`` in others.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from nq.bundle import bundled_sample
from nq.config import DecisionConfig, WindowConfig
from nq.errors import check_argument, is_count
from nq.formats import inputs
from nq.inference.profile import Profile
from nq.inference.scorer import concatenate, feature_rows
from nq.inference.spec import ScorerSpec
from nq.model.cascade import both_models, check_reader, reader_model
from nq.model.folder import check, folder_and_settings
from nq.postprocess.decision import check_reader_rule, check_rule
from nq.preprocess.features import features
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Columns


def find_model(
    model: str | Path | None,
    profile: Profile | str,
    windows: WindowConfig | None,
    decision: DecisionConfig | None,
    batch_size: int,
    reader: str | Path | None,
    read_blocks: int | None,
) -> ScorerSpec:
    """Returns a model that is found and checked; the arguments are those of ``nq.load``.

    Raises:
        FileNotFoundError: a folder has no model, or there is no model of this name.
        ValueError: the profile is unknown, an argument has the wrong type, or the model is damaged.
        Error: a package of the profile or the model is not installed, or the profile does not fit
            the decision rule.
    """
    profile = Profile.of(profile)
    check_argument(is_count(batch_size), "batch_size", batch_size, "a whole number from 1 on")
    model, reader = both_models(model, reader)
    own_decision = decision if reader is None else None
    folder, settings = folder_and_settings(model, windows, own_decision)
    second = reader_model(folder, settings, reader, None, decision, read_blocks)
    rule = second.decision.rule if second else settings.decision.rule
    check_rule(rule, profile.needs_margin)
    profile.require()
    check(folder, settings.windows)
    own = settings.decision
    if second:
        check_reader_rule(rule)
        check_reader(folder, second)
        own = second.decision.ranker
    spec = ScorerSpec(folder, settings.windows, own, batch_size, profile, second)
    return _calibrated(spec) if profile.changes.int8 else spec


def _calibrated(spec: ScorerSpec) -> ScorerSpec:
    """Returns a description with windows of the bundled sample, as both models have them."""
    own, second = _sample_windows(spec.folder, spec.windows), spec.reader
    if second is None:
        return replace(spec, calibration=own)
    readers = _sample_windows(second.folder, second.windows)
    return replace(spec, calibration=own, reader_calibration=readers)


def _sample_windows(folder: Path, windows: WindowConfig) -> Columns:
    tokenizer = load_tokenizer(folder, windows.compat)
    sample = inputs.read_examples(bundled_sample())
    return concatenate([feature_rows(features(e, tokenizer, windows)) for e in sample])
