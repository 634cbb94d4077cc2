"""One run of the news network as a task of the lab."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from penstock.lab.fast.exhaustive_network import ExhaustiveNetwork
from penstock.lab.fast.fast_network import FastNetwork
from penstock.lab.fast.setting import NewsSetting

DEFAULTS = asdict(NewsSetting())


@dataclass(frozen=True)
class NewsTask:
    """Retrieval, or exhaustive filtering on the same workload."""

    setting: NewsSetting
    seed: int
    exhaustive: bool = False

    def text(self) -> str:
        """What differs from Table 4 of 004."""
        given = {name: value for name, value in asdict(self.setting).items() if value != DEFAULTS[name]}
        kind = "exhaustive filtering" if self.exhaustive else "retrieval"
        return " ".join([kind, *(f"{name}={value}" for name, value in sorted(given.items())), f"seed={self.seed}"])

    def work(self) -> float:
        """Requests, more or less."""
        one = self.setting
        return float((one.interests + one.publications) * (2.0 + one.selectivity / 20.0) * one.routers)

    def run(self) -> dict[str, float]:
        """Simulate."""
        if self.exhaustive:
            return ExhaustiveNetwork(self.setting, self.seed).run()
        return FastNetwork(self.setting, self.seed).run().numbers()
