"""`penstock lab`: the papers' experiments, run from end to end, with the paper's numbers beside ours."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.progress import progress_bar
from penstock.errors import PenstockError, wrong_choice

if TYPE_CHECKING:
    from penstock.lab.engine.experiment import Experiment, Result
    from penstock.lab.engine.still_current import Repeats

app = typer.Typer(
    help="Run the papers' experiments and report on them.",
    epilog="Example: penstock lab run delay-cdf-hypoexponential-fit",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line instead of tables.")]
RunsRoot = Annotated[Path, typer.Option("--runs", help="Where runs are kept and found again.")]
COLOURS = {"holds": "green", "fails": "red", "note": "bright_black"}
DEFAULT_SEEDS = {"paper": 5, "smoke": 1}
RESULTS = Path("docs/results")
PAGE = Path("docs/papers.md")


@app.command("list")
def list_command(as_json: AsJson = False) -> None:
    """List all experiments.

    Example: penstock lab list
    """
    from penstock.lab.engine.registry import experiments

    if not as_json:
        typer.echo(f"{'experiment':42} {'figure or section of the paper':38} what it shows")
        typer.echo("000 to 004 are the papers, as docs/papers.md lists them", err=True)
    for experiment in experiments().values():
        if as_json:
            found = {"experiment": experiment.name, "title": experiment.title, "source": experiment.source}
            typer.echo(json.dumps(found))
        else:
            typer.echo(f"{experiment.name:42} {experiment.source:38} {experiment.title}")


@app.command("run")
def run_command(
    names: Annotated[list[str], typer.Argument(help="Names of experiments, or 'all'.")],
    scale: Annotated[str, typer.Option(help="paper: as published. smoke: the same in seconds.")] = "smoke",
    seeds: Annotated[int | None, typer.Option(help="How many seeds; the verdict is on the mean.", min=1)] = None,
    first_seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 1,
    live: Annotated[
        bool, typer.Option("--live", help="On real sockets instead of the simulator, at a small scale.")
    ] = False,
    product: Annotated[
        bool, typer.Option("--product", help="With the product's own settings instead of the paper's.")
    ] = False,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the results at paper scale here, for `penstock lab summary`.")
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only the seeds that the results in --keep lack; they join them.")
    ] = False,
    runs: RunsRoot = Path("runs"),
    master: Annotated[str | None, typer.Option(help="A Spark cluster instead of this machine.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run experiments: simulations, the pipeline on Spark, verdicts, and a report. Exit code 1 if a criterion fails.

    What has run is kept and found again, so a lab that was interrupted goes on where it was. Seeds that a kept result
    does not have join it, if its shortest run, made again, comes out as it was.

    Example: penstock lab run delay-cdf-hypoexponential-fit --scale paper --seeds 5
    """
    from penstock.lab.engine.experiment import SCALES
    from penstock.lab.engine.kept_results import read_results
    from penstock.lab.engine.more_seeds import lacking
    from penstock.lab.engine.registry import experiments, find
    from penstock.lab.engine.runner import no_product, run_experiments
    from penstock.lab.engine.still_current import Repeats
    from penstock.lab.pages.experiment_page import write_reports
    from penstock.pipeline.session import java_in_use, spark_session

    if live and scale != "smoke":
        raise typer.BadParameter("a live run has one scale, smoke", param_hint="--scale")
    if scale not in SCALES:
        raise typer.BadParameter(wrong_choice(scale, SCALES), param_hint="--scale")
    chosen = list(experiments().values()) if "all" in names else [find(name) for name in names]
    if product and "all" in names:
        chosen = [one for one in chosen if not no_product(one, scale)]
    count = seeds if seeds is not None else DEFAULT_SEEDS[scale]
    wanted = range(first_seed, first_seed + count)
    groups = {tuple(wanted): chosen}
    if missing:
        if keep is None or scale != "paper":
            raise typer.BadParameter(
                "what is kept is of --scale paper, in the folder of --keep", param_hint="--missing"
            )
        groups = lacking(chosen, read_results(keep), wanted, product=product)
        if not groups:
            typer.echo(f"nothing is missing in {keep}")
            return
    if scale == "paper":
        _show_estimate(groups, runs, product)
    results: list[Result] = []
    failures: list[PenstockError] = []
    repeats = Repeats()

    def done(result: Result) -> None:
        results.append(result)
        _keep(result, keep, repeats)

    with progress_bar("") as advance:  # the first run says its own name; what is refused ends with one line
        parts = [(family, seeds_of) for seeds_of, some in groups.items() for family in _by_family(some)]
        for family, seeds_of in parts:  # what one has measured is kept before the next begins
            try:
                run_experiments(
                    family,
                    scale=scale,
                    seeds=seeds_of,
                    runs_root=runs,
                    spark=lambda: spark_session(master=master),
                    processes=os.cpu_count() or 1,
                    progress=lambda what, share: advance(share, what),
                    live=live,
                    product=product,
                    done=done,
                )
            except PenstockError as error:  # of some; what the others gave is shown first
                failures.append(error)
    for other in failures[1:]:
        typer.echo(str(other), err=True)
    if failures and not results:
        raise failures[0]
    index = write_reports(results, runs / "report")
    for result in results:
        if as_json:
            typer.echo(json.dumps(result.as_json()))
        else:
            _show(result)
    typer.echo(f"{java_in_use()}; report: {index}", err=True)
    if failures:
        raise failures[0]
    if not all(result.holds() for result in results):
        raise typer.Exit(1)


@app.command("sweep")
def sweep_command(
    name: Annotated[str, typer.Argument(help="An experiment; its first best-effort run is varied.")],
    grid: Annotated[list[str], typer.Option(help="A parameter and its values, such as loss=0.001,0.01.")],
    seeds: Annotated[int, typer.Option(help="How many simulations at every point.", min=1)] = 5,
    first_seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    master: Annotated[str | None, typer.Option(help="A Spark cluster instead of this machine.")] = None,
    as_json: AsJson = False,
) -> None:
    """Vary an experiment's run: each simulation is one Spark task; mean and 95 % confidence interval for every measure.

    Example: penstock lab sweep delay-cdf-hypoexponential-fit --grid loss=0.001,0.01 --seeds 20
    """
    from penstock.lab.engine.sweep import parse_grid, sweep
    from penstock.lab.engine.variants import variants, varied
    from penstock.pipeline.session import spark_session

    points = parse_grid(grid)
    scenario = variants(name).scenario
    for values in product(*points.values()):  # a slip is better found here than by every worker
        varied(scenario, dict(zip(points, values, strict=True)))
    found = sweep(spark_session(master=master), name, points, find=variants, seeds=seeds, first_seed=first_seed)
    for one in found.summary():
        if as_json:
            typer.echo(json.dumps({"experiment": name, **asdict(one)}))
        else:
            point = ", ".join(f"{key}={value}" for key, value in one.parameters.items())
            interval = f"{one.low:,.5g} to {one.high:,.5g}" if one.seeds > 1 else "one seed"
            typer.echo(f"{point:32} {one.measure:38} {one.mean:>12,.5g}   ({interval})")


@app.command("report")
def report_command(runs: RunsRoot = Path("runs"), as_json: AsJson = False) -> None:
    """Write the index over all reports again, and say where it is.

    Example: penstock lab report
    """
    from penstock.lab.pages.experiment_page import write_reports

    index = write_reports([], runs / "report")
    typer.echo(json.dumps({"report": str(index)}) if as_json else str(index))


@app.command("summary")
def summary_command(
    files: Annotated[list[Path] | None, typer.Argument(help="Lines of `lab run --json` to keep first.")] = None,
    results: Annotated[Path, typer.Option(help="Where results are kept.")] = RESULTS,
    page: Annotated[Path, typer.Option(help="The page whose summary is made again.")] = PAGE,
    as_json: AsJson = False,
) -> None:
    """Judge the results that are kept by the bounds of today, and make the summary of all experiments again.

    Example: penstock lab summary
    """
    from penstock.lab.engine.kept_results import judge_again, keep_file
    from penstock.lab.engine.registry import experiments, families
    from penstock.lab.pages.summary import summary, write_summary

    for file in files or []:
        for why in keep_file(file, results):
            typer.echo(f"not kept: {file}, {why}", err=True)
    kept = judge_again(results, experiments())
    changed = write_summary(page, summary(kept, families()))
    said = {"page": str(page), "experiments": len(kept), "changed": changed}
    words = f"{page}: {len(kept)} experiments, {'made again' if changed else 'as it was'}"
    typer.echo(json.dumps(said) if as_json else words)


@app.command("current")
def current_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of experiments; without any, all that are kept.")
    ] = None,
    every_run: Annotated[
        bool, typer.Option("--every-run", help="All runs of the first seed, not the shortest.")
    ] = False,
    results: Annotated[Path, typer.Option(help="Where results are kept.")] = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Ask whether kept results are of the code as it is: make a run of each again. Exit code 1 if any has moved.

    What has moved is marked in the kept results, and in the next summary.

    Example: penstock lab current recovery-delay-cdf
    """
    from penstock.lab.engine.kept_results import judged_results, write_result
    from penstock.lab.engine.registry import experiments, find
    from penstock.lab.engine.still_current import Repeats, marked

    kept = judged_results(results, experiments())
    chosen = [find(name).name for name in names or kept]
    repeats, moved = Repeats(every_run), False
    with progress_bar("") as advance:
        for number, name in enumerate(chosen):
            advance(number / len(chosen), name)
            if name not in kept:
                raise typer.BadParameter(f"no result is kept of {name}", param_hint="names")
            checked = repeats.check(find(name), kept[name])
            write_result(results, marked(kept[name], checked))
            moved |= checked.verdict == "moved"
            said = f"{name:42} {checked.verdict:10} {', '.join(checked.runs)}".rstrip()
            typer.echo(json.dumps(checked._asdict()) if as_json else said)
    if moved:
        raise typer.Exit(1)


def _by_family(chosen: Sequence[Experiment]) -> list[list[Experiment]]:
    """These, by the families that share runs."""
    from penstock.lab.engine.registry import experiments_by_family

    names = {one.name for one in chosen}
    found = [[one for one in those if one.name in names] for those in experiments_by_family().values()]
    return [some for some in found if some]


def _keep(result: Result, folder: Path | None, repeats: Repeats) -> None:
    from penstock.lab.engine.kept_results import KeptResult, keep_lines
    from penstock.lab.engine.more_seeds import joined

    def join(kept: KeptResult, new: KeptResult) -> KeptResult | None:
        return joined(kept, new, result.experiment, repeats)

    if folder is not None:
        for why in keep_lines([json.dumps(result.as_json())], folder, date="", join=join):
            typer.echo(f"not kept: {why}", err=True)


def _show_estimate(groups: Mapping[tuple[int, ...], list[Experiment]], runs: Path, product: bool) -> None:
    """How many runs there are to make, and how long that takes, before it begins."""
    from penstock.lab.engine.estimate import estimates
    from penstock.lab.engine.kept_results import read_results
    from penstock.lab.engine.registry import experiments_by_family

    kept = read_results(RESULTS) if RESULTS.is_dir() else {}
    found = []
    for seeds, chosen in groups.items():
        wanted = {one.name for one in chosen}
        those = {name: [one for one in some if one.name in wanted] for name, some in experiments_by_family().items()}
        found += estimates(those, scale="paper", seeds=seeds, runs_root=runs, kept=kept, product=product)
    for one in found:
        guessed = f" ({one.guessed} were never timed: guessed from the others)" if one.guessed else ""
        time = f"about {one.seconds / 60:.0f} minutes of one processor{guessed}" if one.seconds else "never timed"
        typer.echo(f"{one.family:16} {one.missing} of {one.runs} runs to make, then to measure: {time}", err=True)
    if len(found) > 1:
        typer.echo(f"{'all':16} about {sum(one.seconds for one in found) / 3600:.1f} hours of one processor", err=True)


def _show(result: Result) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from penstock.lab.pages.verdicts import bound_text, shown, verdict, verdict_style

    title = f"{result.experiment.name}: {result.experiment.title} ({result.experiment.source}, {result.scale})"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("criterion", "paper", "ours", "bound", "verdict"):
        table.add_column(heading, justify="right" if heading == "ours" else "left")
    for finding in result.findings:
        colour = COLOURS[verdict_style(finding)]
        table.add_row(
            finding.criterion.name,
            finding.criterion.paper,
            shown(finding.value),
            bound_text(finding.criterion.low, finding.criterion.high),
            f"[{colour}]{verdict(finding)}[/]",
        )
    Console().print(table)
