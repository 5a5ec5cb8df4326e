"""A record of the tests' own, valid in every field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oneproj_paper.experiments.record_schema import (
    CertificateRecord,
    CountsRecord,
    DataRecord,
    MeasureRecord,
    ProjectionRecord,
    Record,
)
from oneproj_paper.experiments.surroundings import versions


def _make_record(**changes: Any) -> Record:  # noqa: ANN401 - of any field
    fields: dict[str, Any] = {
        "experiment": "abstention-gaussian",
        "preset": "paper",
        "method": "one-projection",
        "projector": "cuts",
        "seed": 0,
        "task": "abstention",
        "settings": {
            "lr": 0.05,
            "thresholds": [0.3, 0.3],
            "slack": None,
            "target_error": 0.15,
            "caps": {"class 0 error": 0.32},
            "hidden": [],
        },
        "data": DataRecord(
            stand_in=False,
            note="synthetic",
            variables=8,
            inputs=8,
            parameters=18,
            counts={"train": (600, 600), "validation": (200, 200), "test": (200, 200)},
        ),
        "status": "feasible",
        "feasible": True,
        "objective": 0.5,
        "residuals": {"class 0 error": -0.01},
        "residuals_before": {"class 0 error": 0.01},
        "risks": {"class 0 error": 0.31},
        "metrics": {
            "test": {
                "class_0_error": 0.1,
                "class_1_error": 0.2,
                "ambiguity": 0.11,
                "decided_accuracy": float("inf"),
            }
        },
        "certificate": CertificateRecord(
            measures=(
                MeasureRecord(
                    name="feasibility",
                    value=-0.01,
                    bound=0.0,
                    holds=True,
                    source="all data",
                    error=0.0,
                ),
            ),
            multipliers={},
            holds=True,
        ),
        "projection": ProjectionRecord(0.1, 7, 1e-9),
        "counts": CountsRecord(500, 1000, 20, 1),
        "updates": 500,
        "planned_updates": 500,
        "complete": True,
        "seconds": {"source_fit": 0.0, "train": 1.0, "project": 0.1, "certify": 0.1},
        "runtime": 1.1,
        "extrapolated_from": None,
        "history": {"update": (0.0, 500.0), "objective": (0.7, 0.5)},
        "command": "oneproj-paper reproduce",
        "versions": versions(),
        "machine": {"processor": "one", "cores": 2, "system": "any", "threads": 1},
    }
    return Record(**(fields | changes))


@pytest.fixture(scope="session")
def make_record() -> Callable[..., Record]:
    """The factory of records."""
    return _make_record
