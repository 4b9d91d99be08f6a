"""The environment of a run as a table, and the comparability key made from it."""

from dataclasses import dataclass

MEASUREMENT_VERSION = 1
"""Raised when a change of perfci changes what the same launch would measure. Part of the comparability key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentField:
    """One row of the environment table."""

    name: str
    title: str
    unit: str = ""
    in_key: bool = False


ENVIRONMENT_FIELDS: dict[str, EnvironmentField] = {
    field.name: field
    for field in (
        EnvironmentField(name="measurement_version", title="perfci measurement version", in_key=True),
        EnvironmentField(name="collector", title="collector", in_key=True),
        EnvironmentField(name="collector_version", title="collector version", in_key=True),
        EnvironmentField(name="workload_hash", title="workload definition", in_key=True),
        EnvironmentField(name="world_size", title="world size", in_key=True),
        EnvironmentField(name="gpu_model", title="GPU model", in_key=True),
        EnvironmentField(name="driver", title="driver", in_key=True),
        EnvironmentField(name="cuda", title="CUDA", in_key=True),
        EnvironmentField(name="torch", title="torch", in_key=True),
        EnvironmentField(name="cpu_model", title="CPU model", in_key=True),
        EnvironmentField(name="sm_clock_locked_mhz", title="SM clock locked by perfci", unit="MHz", in_key=True),
        EnvironmentField(name="cudnn", title="cuDNN"),
        EnvironmentField(name="python", title="Python"),
        EnvironmentField(name="perfci", title="perfci"),
        EnvironmentField(name="gpu_count", title="GPUs"),
        EnvironmentField(name="gpu_uuid_class", title="GPU identity class"),
        EnvironmentField(name="gpu_memory_mib", title="GPU memory", unit="MiB"),
        EnvironmentField(name="mig", title="MIG mode"),
        EnvironmentField(name="ecc", title="ECC"),
        EnvironmentField(name="persistence", title="persistence mode"),
        EnvironmentField(name="sm_clock_max_mhz", title="highest SM clock", unit="MHz"),
        EnvironmentField(name="sm_clock_mhz", title="SM clock (median of the run)", unit="MHz"),
        EnvironmentField(name="power_limit_w", title="power limit", unit="W"),
        EnvironmentField(name="temperature_c", title="GPU temperature (highest of the run)", unit="°C"),
        EnvironmentField(name="cpu_governor", title="CPU governor"),
        EnvironmentField(name="cpu_turbo", title="CPU turbo"),
        EnvironmentField(name="cpu_count", title="CPUs usable"),
        EnvironmentField(name="cpu_affinity", title="CPUs pinned"),
        EnvironmentField(name="kernel", title="kernel"),
        EnvironmentField(name="container", title="container image"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Facts about the machine and software of one run: ``(name, value)`` pairs sorted by name. Absent means not
    known, never empty.

    Names beyond ENVIRONMENT_FIELDS are allowed with the prefix ``user.`` (comparability key additions of the
    configuration): these
    are always part of the key.
    """

    entries: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.entries]
        if names != sorted(set(names)):
            raise ValueError("environment entries must be sorted by name and unique")
        for name, value in self.entries:
            if name not in ENVIRONMENT_FIELDS and not name.startswith("user."):
                raise ValueError(f"unknown environment field {name!r}")
            if not value:
                raise ValueError(f"environment field {name!r} is empty; leave it out when it is not known")

    @classmethod
    def of(cls, values: dict[str, str]) -> "Environment":
        """Build from a dictionary, in any order."""
        return cls(entries=tuple(sorted(values.items())))

    def get(self, name: str) -> str | None:
        """Value of a field, or None when it is not known."""
        return dict(self.entries).get(name)

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The comparability key: two runs are comparable exactly when their keys are equal."""
        return tuple(
            (name, value) for name, value in self.entries if name.startswith("user.") or ENVIRONMENT_FIELDS[name].in_key
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDifference:
    """One reason why two runs must not be compared. None: not known on that side."""

    field: str
    baseline: str | None
    candidate: str | None


def key_differences(baseline: Environment, candidate: Environment) -> tuple[KeyDifference, ...]:
    """All fields in which the comparability keys differ, sorted by name. Empty: comparable.

    A field known on one side only is a difference: unknown is not equal.
    """
    left, right = dict(baseline.key), dict(candidate.key)
    return tuple(
        KeyDifference(field=name, baseline=left.get(name), candidate=right.get(name))
        for name in sorted(left.keys() | right.keys())
        if left.get(name) != right.get(name)
    )
