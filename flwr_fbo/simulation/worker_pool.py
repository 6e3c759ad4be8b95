"""A pool of worker processes on one machine, forked from a process that runs no user code.

The simulation forks one process, the *host*, before any code of the user runs. The host forks the
workers, and forks another worker when one has ended. So every worker begins with the memory of the
simulation as it was at the start: a task from a notebook, a closure or a lambda needs no pickling.
And no worker inherits the threads or locks of libraries that an evaluation has started since.

A worker makes one job at a time, and has a process group of its own. Ctrl-C in a terminal therefore
reaches only the simulation, which then interrupts the workers and waits for them. On Linux workers
also end when the host does, and the host when the simulation does, even by SIGKILL.

A job that ends its worker is given to another worker, which can see from its own records what
happened (:mod:`flwr_fbo.core.evaluation`). A job whose workers ended :data:`MOST_ENDED` times is
dropped.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import socket
import sys
import time
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from flwr_fbo.core.children import end_with, flush_output, signals_later
from flwr_fbo.core.forks import ending_forked_processes

#: How often the workers of one job may end in one round.
MOST_ENDED = 20
#: Seconds after the end of a round in which answers still count, as a time limit ends evaluations.
GRACE = 5.0
#: Seconds that interrupted workers have to record what they were doing before they are killed.
LAST_WORDS = 3.0
#: Seconds between two looks at the clock while no worker answers.
PAUSE = 0.2

#: Makes a job in a worker: takes what all jobs share and the job, and returns the answer.
Answer = Callable[[Any, Any], Any]


class PoolError(RuntimeError):
    """An error for a pool whose host has ended."""


class WorkerPool:
    """Worker processes that make jobs, each known by a number: the job's key.

    Parameters
    ----------
    count
        The most workers. A worker is started when a job waits for one.
    make_answer
        Called once in each worker. Returns the function that makes the jobs.
    """

    def __init__(self, count: int, make_answer: Callable[[], Answer]) -> None:
        self.count = count
        self._host = _Host(make_answer)
        self._workers: list[_Worker] = []
        self._homes: dict[int, int] = {}  # the worker that made the last job with a key
        self._round = 0

    def ask(
        self,
        shared: Any,
        keys: Iterable[int],
        job: Callable[[int], Any],
        seconds: float,
        on_answer: Callable[[int, Any], None],
    ) -> list[int]:
        """Let the workers make one job for each key, and pass on each answer.

        Parameters
        ----------
        shared
            What all jobs need; sent to a worker once while it is the same object.
        keys
            The keys, in the order in which their jobs are begun.
        job
            Returns the job of a key.
        seconds
            Seconds after which no further job is begun. :data:`GRACE` later nobody waits for an
            answer any more, and the workers that still are at work finish on their own.
        on_answer
            Takes the key and the answer, in the order in which the answers come.

        Returns
        -------
        list of int
            The keys of the jobs that were not begun.
        """
        self._round += 1
        turns = _Turns(keys, self._homes, self._under_way())
        ended: Counter[int] = Counter()
        began = time.monotonic()
        while (spent := time.monotonic() - began) < seconds + GRACE:
            if spent < seconds:
                self._send(turns, shared, job)
            if not self._has_open(turns, begins=spent < seconds):
                break
            for worker in self._ready():
                self._receive(worker, turns, ended, on_answer)
        return turns.left

    def _under_way(self) -> dict[int, int]:
        """Return the workers that are still at work for an earlier round, by key."""
        return {w.under_way[1]: w.number for w in self._workers if w.under_way is not None}

    def _has_open(self, turns: _Turns, begins: bool) -> bool:
        """Return whether an answer of this round is to come."""
        here = any(w.under_way and w.under_way[0] == self._round for w in self._workers)
        return here or (begins and not turns.empty)

    def _send(self, turns: _Turns, shared: Any, job: Callable[[int], Any]) -> None:
        """Send a job to each worker that is free."""
        # None is sent ahead to a worker that is at work: its job may be one that never ends.
        while turns.waiting and (worker := self._free()) is not None:
            key = turns.take(worker.number)
            self._homes[key] = worker.number
            worker.send(self._round, key, job(key), shared)

    def _free(self) -> _Worker | None:
        """Return a worker without a job, started if need be; None where all are at work."""
        free = next((worker for worker in self._workers if worker.under_way is None), None)
        if free is None and len(self._workers) < self.count:
            free = self._host.start_worker(len(self._workers))
            self._workers.append(free)
        return free

    def _ready(self) -> list[_Worker]:
        """Return the workers that have answered or ended, after a wait of :data:`PAUSE`."""
        by_connection = {worker.connection: worker for worker in self._workers}
        ready = wait(list(by_connection), PAUSE)
        return [by_connection[c] for c in ready if isinstance(c, Connection)]

    def _receive(
        self,
        worker: _Worker,
        turns: _Turns,
        ended: Counter[int],
        on_answer: Callable[[int, Any], None],
    ) -> None:
        """Take in the answer of a worker; replace a worker that has ended."""
        try:
            answer = worker.receive()
        except (EOFError, OSError):
            self._replace(worker, turns, ended)
            return
        if worker.under_way is None:
            return
        (number, key), worker.under_way = worker.under_way, None
        turns.release(key)
        if number == self._round:
            on_answer(key, answer)

    def _replace(self, worker: _Worker, turns: _Turns, ended: Counter[int]) -> None:
        """Start another worker in the place of one that has ended, and give it the same job."""
        worker.connection.close()
        if worker.under_way is not None:
            number, key = worker.under_way
            turns.release(key)
            if number == self._round:
                ended[key] += 1
                if ended[key] <= MOST_ENDED:
                    turns.put_back(key, worker.number)
        self._workers[worker.number] = self._host.start_worker(worker.number)

    def close(self) -> None:
        """End all processes, after the evaluations under way were interrupted."""
        self._host.close()
        for worker in self._workers:
            worker.connection.close()
        self._workers.clear()


class _Turns:
    """The keys whose jobs wait, in an order that sends a key to the worker that knows it.

    A worker that has no own key left takes a new one, or one of the worker with the most.
    """

    def __init__(self, keys: Iterable[int], homes: dict[int, int], busy: dict[int, int]) -> None:
        self._own: dict[int, deque[int]] = {}
        self._new: deque[int] = deque()
        self._held: dict[int, int] = {}  # their last job is still under way in this worker
        for key in keys:
            if key in busy:
                self._held[key] = busy[key]
            elif key in homes:
                self._own.setdefault(homes[key], deque()).append(key)
            else:
                self._new.append(key)

    @property
    def waiting(self) -> bool:
        """Return whether a job can be begun."""
        return bool(self._new or any(self._own.values()))

    @property
    def empty(self) -> bool:
        """Return whether no job waits, for a worker or for its last job."""
        return not (self.waiting or self._held)

    @property
    def left(self) -> list[int]:
        """Return the keys of the jobs that could be begun and were not."""
        return [*self._new, *(key for keys in self._own.values() for key in keys)]

    def take(self, worker: int) -> int:
        """Return the next key for a worker, and forget it; some key must be waiting."""
        queue = self._own.get(worker) or self._new or max(self._own.values(), key=len)
        return queue.popleft()

    def put_back(self, key: int, worker: int) -> None:
        """Let a key be the next of a worker."""
        self._own.setdefault(worker, deque()).appendleft(key)

    def release(self, key: int) -> None:
        """Let a key wait no longer for its last job."""
        worker = self._held.pop(key, None)
        if worker is not None:
            self.put_back(key, worker)


@dataclass(eq=False)
class _Worker:
    """The simulation's side of one worker."""

    number: int
    connection: Connection
    #: The round and the key of the job that was sent and not answered.
    under_way: tuple[int, int] | None = None
    _shared: Any = None

    def send(self, number: int, key: int, job: Any, shared: Any) -> None:
        """Send a job; that the worker has ended shows when its answer is read."""
        self.under_way = number, key
        with contextlib.suppress(OSError):
            if self._shared is not shared:
                self._pass_on(True, shared)
                self._shared = shared
            self._pass_on(False, job)

    def _pass_on(self, is_shared: bool, content: Any) -> None:
        """Send a job, or what jobs share."""
        self.connection.send_bytes(pickle.dumps((is_shared, content), pickle.HIGHEST_PROTOCOL))

    def receive(self) -> Any:
        """Return the answer; raise EOFError or OSError if the worker has ended."""
        return pickle.loads(self.connection.recv_bytes())


# -- the host ----------------------------------------------------------------------------------


class _Host:
    """The simulation's side of the process that forks the workers."""

    def __init__(self, make_answer: Callable[[], Answer]) -> None:
        flush_output()  # or the host would print again what is not printed yet
        self._control, its = socket.socketpair()
        parent = os.getpid()
        with signals_later():
            self._pid = _fork()
            if self._pid == 0:
                self._control.close()
                _run_host(its, make_answer, parent)
        its.close()

    def start_worker(self, number: int) -> _Worker:
        """Let the host fork a worker, and return it."""
        mine, its = socket.socketpair()
        with its:
            try:
                socket.send_fds(self._control, [b"+"], [its.fileno()])
            except OSError as error:
                mine.close()
                raise PoolError(
                    "the process that starts the workers of this simulation has ended; "
                    "`flwr-fbo resume` continues the run"
                ) from error
        return _Worker(number, Connection(mine.detach()))

    def close(self) -> None:
        """Let the host end all workers, and wait for its own end."""
        with contextlib.suppress(OSError):  # a process that a task forked may hold a copy of it
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        deadline = time.monotonic() + 2 * LAST_WORDS
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self._pid, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:  # its workers end with it
                    os.kill(self._pid, signal.SIGKILL)
                time.sleep(0.002)


def _fork() -> int:
    """Fork this process, and return the child's id; 0 in the child."""
    with warnings.catch_warnings():  # Python 3.12 warns where there are threads
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _run_host(control: socket.socket, make_answer: Callable[[], Answer], parent: int) -> None:
    """Fork a worker for each descriptor that comes, and end them all when the simulation ends."""
    workers: set[int] = set()
    try:
        os.setpgid(0, 0)
        end_with(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _open_output()
        gc.freeze()  # so that collections copy no memory that all workers share
        while True:
            byte, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            if not byte:
                break
            host, pid = os.getpid(), _fork()
            if pid == 0:
                control.close()
                _run_worker(descriptors[0], make_answer, host)
            os.close(descriptors[0])
            workers.add(pid)
            _bury(workers)
        _end(workers)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _open_output() -> None:
    """Open Python's output anew: a progress view that draws there may hold its lock just now."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        with contextlib.suppress(OSError):
            setattr(sys, name, open(descriptor, "w", buffering=1, closefd=False))  # noqa: SIM115


def _bury(workers: set[int]) -> None:
    """Forget workers that have ended, and end what they have left in their groups."""
    for pid in list(workers):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            _kill_group(pid)
            workers.discard(pid)
            os.waitpid(pid, 0)


def _end(workers: set[int]) -> None:
    """Interrupt the workers, and kill those that have not ended some seconds later."""
    for pid in workers:
        os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + LAST_WORDS
    while workers and time.monotonic() < deadline:
        _bury(workers)
        time.sleep(0.002)
    for pid in workers:
        _kill_group(pid)
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    """Kill the process group of a worker, if it has one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


# -- a worker ----------------------------------------------------------------------------------


def _run_worker(descriptor: int, make_answer: Callable[[], Answer], host: int) -> None:
    """Make jobs until nobody asks any more, and end this process."""
    code = 1
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        end_with(host)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        connection = Connection(descriptor)
        # A process that a task leaves behind must not hide that its worker has ended.
        os.register_at_fork(after_in_child=connection.close)
        _make_jobs(connection, make_answer())
        code = 0
    except KeyboardInterrupt:  # what was under way is recorded
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            flush_output()
        os._exit(code)


def _make_jobs(connection: Connection, answer: Answer) -> None:
    """Make the jobs that come, one after another, until nobody is left who asks."""
    shared: Any = None
    while True:
        try:
            is_shared, content = pickle.loads(connection.recv_bytes())
        except (EOFError, ConnectionError):
            return
        if is_shared:
            shared = content
            continue
        with ending_forked_processes():
            made = answer(shared, content)
        pickled = pickle.dumps(made, pickle.HIGHEST_PROTOCOL)
        try:
            connection.send_bytes(pickled)
        except ConnectionError:
            return
