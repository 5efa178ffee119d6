"""Algorithm 1 on a cluster: Ray encodes and labels, Ray Train runs the loop over several processes.

An actor collects the progress messages of these processes for the terminal that started them.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from mein.config import Config
from mein.data.corpus import Corpus
from mein.engines.cluster import as_extra, refuse_unshared, reported
from mein.engines.steps import encode_on_ray, label_on_ray
from mein.errors import LostProcess, MeinError, RunError
from mein.run.algorithm import learned_expert, train
from mein.run.prepare import prepare
from mein.run.state import UNLABELED_PARTS, Run
from mein.run.teacher import label_store, learned_teacher
from mein.runtime import ranks
from mein.runtime.progress import Quiet, Reporter, Task
from mein.runtime.run_folder import RunFolder

SECONDS = 0.2  # between two polls of the mailbox, and between two messages about the same task
Message = tuple[str, tuple[Any, ...]]  # what to do, and its arguments


class Mailbox:
    """An actor beside the terminal: unread messages, and why the work cannot continue."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.refused: str | None = None

    def put(self, name: str, *arguments: Any) -> None:
        """Add a message."""
        self.messages.append((name, arguments))

    def take(self) -> list[Message]:
        """The messages since the last call."""
        messages, self.messages = self.messages, []
        return messages

    def refuse(self, sentence: str) -> None:
        """Remember the first reason to give up."""
        self.refused = sentence if self.refused is None else self.refused

    def refusal(self) -> str | None:
        """The reason to give up, if there is one."""
        return self.refused


def open_mailbox() -> Any:
    """A mailbox on this machine, which lives as long as the reference to it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0)(Mailbox).options(scheduling_strategy=here).remote()


class RemoteReporter:
    """A reporter whose messages go to a mailbox."""

    def __init__(self, mailbox: Any) -> None:
        self.mailbox = mailbox
        self.documents, self.last = 0, 0.0

    def log(self, line: str) -> None:
        """Send one line."""
        self.mailbox.put.remote("log", line)

    def advance(self, documents: int, note: str = "") -> None:
        """Send the progress, now and then."""
        self.documents += documents
        if time.monotonic() - self.last >= SECONDS:
            self.mailbox.put.remote("advance", self.documents, note)
            self.documents, self.last = 0, time.monotonic()

    @contextmanager
    def task(self, name: str, total: int | None, done: int = 0) -> Iterator[Task]:
        """Send that a task begins, and that it ends."""
        self.documents = 0
        self.mailbox.put.remote("begin", name, total, done)
        yield self
        self.mailbox.put.remote("end")


@contextmanager
def forwarded(mailbox: Any, reporter: Reporter) -> Iterator[None]:
    """Show the messages of a mailbox, all of them before the end."""
    import ray
    from ray.exceptions import RayError

    is_over = threading.Event()

    def read() -> None:
        with suppress(RayError), ExitStack() as open_task:  # the caller that waits for the work gets it
            task: Task | None = None
            while True:
                is_last = is_over.wait(SECONDS)
                for name, arguments in ray.get(mailbox.take.remote()):
                    if name == "log":
                        reporter.log(*arguments)
                    elif name == "advance" and task is not None:
                        task.advance(*arguments)
                    elif name in ("begin", "end"):
                        open_task.close()  # also of a process that was lost in the middle of it
                        task = open_task.enter_context(reporter.task(*arguments)) if name == "begin" else None
                if is_last:
                    return

    reader = threading.Thread(target=read, name="messages", daemon=True)
    reader.start()
    try:
        yield
    finally:
        is_over.set()
        reader.join()


MOST_LOSSES = 20  # of processes or machines, in one stage
STATE = ".ray"  # the state of Ray Train while it works
Work = Callable[[Reporter], Any]


def train_on_ray(
    config: Config, corpus: Corpus, path: Path, reporter: Reporter, *, resume: bool, processes: int | None
) -> None:
    """Algorithm 1 in a folder that all machines share; the command that resumes it evaluates.

    At most `processes` train together; None: one per GPU, or per machine.
    """
    folder = RunFolder(path.resolve())
    with folder.held():
        run = prepare(config, corpus, folder, reporter, resume=resume, spread=partial(encode_on_ray, None))
        if run.has_imitators and not (folder / "imitators.safetensors").exists():
            if not (folder / "expert.safetensors").exists():
                _fit(partial(_train_expert, config, corpus, folder), folder, reporter, processes)
            _label(run, reporter)
        if not (folder / "mixture.safetensors").exists():
            _fit(partial(_train, config, corpus, folder), folder, reporter, processes)


def _train_expert(config: Config, corpus: Corpus, folder: RunFolder, reporter: Reporter) -> None:
    learned_expert(prepare(config, corpus, folder, reporter, resume=True))


def _train(config: Config, corpus: Corpus, folder: RunFolder, reporter: Reporter) -> None:
    train(prepare(config, corpus, folder, reporter, resume=True))


def _label(run: Run, reporter: Reporter) -> None:
    """Write the teacher's soft labels for stage 2, which then finds them."""
    expert, classes = learned_expert(run), run.labeled.labels.classes
    with run.folder.timed("labeling"):
        teacher, by = learned_teacher(run, expert)
        also = ("train",) if run.config.imitator_training.reads_labeled else ()
        for part in (*UNLABELED_PARTS, *also):
            store = run.store_to_label(part, by)
            work = partial(label_on_ray, None, teacher, store, classes, by)
            label_store(store, classes, by, work, reporter)


def _fit(work: Work, folder: RunFolder, reporter: Reporter, processes: int | None) -> None:
    """Let Ray Train run some work in connected processes; it replaces those that are lost."""
    import ray

    with as_extra():
        from ray.train import FailureConfig, RunConfig
        from ray.train.torch import TorchConfig, TorchTrainer

    logging.getLogger("ray.train").setLevel(logging.CRITICAL)
    refuse_unshared(str(folder.path))
    mailbox = open_mailbox()
    trainer = TorchTrainer(
        _take_part,
        train_loop_config={"work": work, "mailbox": mailbox, "folder": os.getcwd()},  # noqa: PTH109
        scaling_config=_scaling(processes),
        torch_config=TorchConfig(timeout_s=int(ranks.LONGEST_WAIT.total_seconds())),
        run_config=RunConfig(
            name="train",
            storage_path=str(folder / STATE),
            failure_config=FailureConfig(max_failures=MOST_LOSSES),
        ),
    )
    shutil.rmtree(folder / STATE, ignore_errors=True)
    failure = None
    try:
        with reported(), forwarded(mailbox, reporter):
            trainer.fit()
    except RunError as problem:
        failure = problem
    finally:
        shutil.rmtree(folder / STATE, ignore_errors=True)
    refusal = ray.get(mailbox.refusal.remote())
    if refusal is not None:
        raise RunError(refusal) from failure
    if failure is not None:
        raise failure


def _take_part(given: dict[str, Any]) -> None:
    """What each process does: its share of the work, unless an earlier attempt was refused."""
    import ray

    mailbox = given["mailbox"]
    if ray.get(mailbox.refusal.remote()) is not None:
        return
    os.chdir(given["folder"])  # where the user's relative paths are valid
    try:
        given["work"](RemoteReporter(mailbox) if ranks.is_first() else Quiet())
    except LostProcess:
        raise  # Ray starts all of them again
    except Exception as problem:
        is_known = isinstance(problem, MeinError)
        sentence = f"Training failed on the cluster ({problem!r}): see Ray's logs."
        sentence = str(problem) if is_known else sentence
        ray.get(mailbox.refuse.remote(sentence))  # another attempt would fail too
        raise


def _scaling(processes: int | None) -> Any:
    """At most `processes`, fewer while machines are missing; they share the cores."""
    import ray
    from ray.train import ScalingConfig

    cluster = ray.cluster_resources()
    machines = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    cores = [int(count) for count in machines if count >= 1]
    gpus = int(cluster.get("GPU", 0))
    if gpus:
        return ScalingConfig(num_workers=(1, min(gpus, processes or gpus)), use_gpu=True)
    most = len(cores) if processes is None else processes
    own = max(1, min(sum(cores) // most, *cores))
    return ScalingConfig(num_workers=(1, most), resources_per_worker={"CPU": own})
