"""The paper's own numbers, digit by digit as it prints them.

Section 5 and appendix D: tables transfer-results, transfer-optimization-details,
combined-abstention-results, abstention-calibration, transfer-datasets and
appendix-d-datasets. Errors, ambiguity and accuracy are percentages, runtimes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ONE_PROJECTION, PROJECTED_SGD = "one-projection", "projected-sgd"


@dataclass(frozen=True)
class Printed:
    """A mean and its sample standard deviation over ten runs, as printed.

    Example:
        >>> Printed("0.022", "0.000").resolution
        0.0005
    """

    mean_text: str
    sd_text: str

    @property
    def mean(self) -> float:
        """The mean as a number."""
        return float(self.mean_text)

    @property
    def sd(self) -> float:
        """The standard deviation as a number."""
        return float(self.sd_text)

    @property
    def resolution(self) -> float:
        """Half a unit in the last digit: a standard deviation of 0 may hide this."""
        decimals = len(self.sd_text.partition(".")[2])
        return float(f"5e-{decimals + 1}")


@dataclass(frozen=True)
class Row:
    """What the paper reports for one method in one experiment.

    Example:
        >>> RESULTS["transfer-gaussian"]["one-projection"].numbers["runtime"].mean
        9.74
    """

    numbers: Mapping[str, Printed]
    """By quantity; see ``quantities``."""
    updates: str
    thresholds: str = ""
    """Abstention: the calibrated (beta_0, beta_1)."""
    source_cap: str = ""
    """Transfer: the cap on the source risk."""


@dataclass(frozen=True)
class DataSet:
    """What the paper says about the data of one experiment.

    Example:
        >>> DATA["transfer-gaussian"].source
        '1000/1000'
    """

    title: str
    """The name of the data in the paper's tables."""
    variables: str
    target: str = ""
    """Transfer: class 0/class 1 of the target training sample."""
    source: str = ""
    model: str = ""
    observations: str = ""
    """Abstention: all of them, in training, validation and test."""
    classes: str = ""
    target_error: str = ""
    """The nominal class error alpha."""


def _transfer(
    error: tuple[str, str],
    risk: tuple[str, str],
    runtime: tuple[str, str],
    updates: str,
    source: tuple[str, str, str],
) -> Row:
    numbers = {
        "target error": Printed(*error),
        "target risk": Printed(*risk),
        "runtime": Printed(*runtime),
        "source risk": Printed(*source[1:]),
    }
    return Row(numbers, updates, source_cap=source[0])


def _abstention(  # noqa: PLR0917 - in the order of the paper's columns
    class_0: tuple[str, str],
    class_1: tuple[str, str],
    ambiguity: tuple[str, str],
    runtime: tuple[str, str],
    thresholds: str,
    accuracy: tuple[str, str],
) -> Row:
    numbers = {
        "class 0 error": Printed(*class_0),
        "class 1 error": Printed(*class_1),
        "ambiguity": Printed(*ambiguity),
        "runtime": Printed(*runtime),
        "decided accuracy": Printed(*accuracy),
    }
    return Row(numbers, updates="500", thresholds=thresholds)


RESULTS: Mapping[str, Mapping[str, Row]] = {
    "transfer-gaussian": {
        ONE_PROJECTION: _transfer(
            *(("10.00", "0.81"), ("0.253", "0.030"), ("9.74", "0.23")),
            *("3,000", ("0.02236", "0.022", "0.001")),
        ),
        PROJECTED_SGD: _transfer(
            *(("9.92", "0.66"), ("0.252", "0.033"), ("67.55", "17.90")),
            *("500", ("0.02236", "0.022", "0.000")),
        ),
    },
    "transfer-climsim": {
        ONE_PROJECTION: _transfer(
            *(("7.26", "1.31"), ("0.333", "0.079"), ("15.25", "2.12")),
            *("1,000", ("0.02294", "0.02295", "0.00000")),
        ),
        PROJECTED_SGD: _transfer(
            *(("7.13", "1.86"), ("0.323", "0.073"), ("658.91", "116.26")),
            *("100", ("0.02294", "0.02295", "0.00000")),
        ),
    },
    "abstention-gaussian": {
        ONE_PROJECTION: _abstention(
            *(("12.84", "2.60"), ("13.89", "2.59"), ("11.10", "2.28")),
            *(("1.73", "0.31"), "(0.300, 0.300)", ("84.95", "2.14")),
        ),
        PROJECTED_SGD: _abstention(
            *(("12.99", "2.50"), ("14.04", "2.24"), ("11.15", "2.53")),
            *(("18.69", "1.30"), "(0.300, 0.300)", ("84.77", "1.96")),
        ),
    },
    "abstention-climsim": {
        ONE_PROJECTION: _abstention(
            *(("9.35", "0.43"), ("5.00", "1.00"), ("1.72", "0.44")),
            *(("5.66", "0.61"), "(0.180, 0.290)", ("91.69", "0.60")),
        ),
        PROJECTED_SGD: _abstention(
            *(("9.00", "0.86"), ("5.09", "1.73"), ("2.95", "1.03")),
            *(("353.63", "42.62"), "(0.140, 0.225)", ("91.96", "0.98")),
        ),
    },
    "abstention-nasa": {
        ONE_PROJECTION: _abstention(
            *(("9.68", "0.42"), ("9.55", "1.74"), ("9.17", "0.76")),
            *(("4.91", "0.18"), "(0.260, 0.210)", ("89.35", "0.39")),
        ),
        PROJECTED_SGD: _abstention(
            *(("9.80", "0.41"), ("10.74", "2.84"), ("8.62", "1.75")),
            *(("940.30", "223.84"), "(0.260, 0.280)", ("89.46", "0.44")),
        ),
    },
    "abstention-credit": {
        ONE_PROJECTION: _abstention(
            *(("16.75", "2.27"), ("21.20", "2.54"), ("14.95", "2.89")),
            *(("5.63", "0.70"), "(0.425, 0.400)", ("79.77", "1.73")),
        ),
        PROJECTED_SGD: _abstention(
            *(("17.80", "2.04"), ("20.44", "2.96"), ("16.05", "2.95")),
            *(("1167.85", "237.30"), "(0.425, 0.400)", ("78.78", "1.58")),
        ),
    },
}
"""By experiment and method, in the order of the paper's tables."""

DATA: Mapping[str, DataSet] = {
    "transfer-gaussian": DataSet(
        title="Gaussian",
        variables="10",
        target="40/40",
        source="1000/1000",
        model="Linear with intercept",
    ),
    "transfer-climsim": DataSet(
        title="ClimSim rainfall",
        variables="124",
        target="100/100",
        source="950/950",
        model="[8] Softplus MLP",
    ),
    "abstention-gaussian": DataSet(
        title="Gaussian",
        variables="8",
        observations="2,000",
        classes="1,000/1,000",
        target_error="0.15",
    ),
    "abstention-climsim": DataSet(
        title="ClimSim rainfall",
        variables="124",
        observations="11,373",
        classes="10,825/548",
        target_error="0.05",
    ),
    "abstention-nasa": DataSet(
        title="NASA rainfall",
        variables="6",
        observations="49,302",
        classes="47,073/2,229",
        target_error="0.10",
    ),
    "abstention-credit": DataSet(
        title="Credit default",
        variables="11",
        observations="23,864",
        classes="21,236/2,628",
        target_error="0.20",
    ),
}

EXPERIMENTS = tuple(RESULTS)
"""In the order of the paper."""
