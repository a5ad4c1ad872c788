"""Streams that a cluster with TLS computes, also for other processes."""

import gc
import io
import logging
import multiprocessing
import pickle
import threading
from pathlib import Path

import chunks
import dask
import dask.array as da
import distributed
import numpy as np
import pytest
from clusters import certificate, local_cluster, tls_settings
from torch.utils.data import DataLoader

import arrayferry as af

pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork"),  # by JAX, which the workers do not use
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
PIDS = da.zeros(4, chunks=2).map_blocks(chunks.add_process, dtype=float, meta=np.empty(0))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def encrypted(files):
    """A cluster with TLS, and the number of its one process."""
    security = distributed.Security(**tls_settings(*files))
    with (
        local_cluster(processes=True, security=security, protocol="tls") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        (process,) = client.run(chunks.os.getpid).values()
        yield cluster.scheduler_address, process


@pytest.fixture(scope="module")
def elsewhere():
    """Read streams in a process that was spawned, and so has none of the settings that are made here."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield lambda stream: pool.apply(chunks.first_values, [stream])


def settings(files, where):
    """Return the settings of a client: the names of files, or keys themselves."""
    if where == "memory":
        files = [Path(file).read_text() for file in files]
    return distributed.Security(**tls_settings(*files))


def configured(files):
    """Set the names of the files of a client in Dask's configuration."""
    names = "ca-file", "client.cert", "client.key"
    own = zip(names, (files[0], *files), strict=True)
    return dask.config.set({f"distributed.comm.tls.{name}": file for name, file in own})


def forked(stream):
    options = {"batch_size": None, "num_workers": 1, "multiprocessing_context": "fork"}
    return [block[0].item() for block in DataLoader(stream, **options)]


@pytest.mark.parametrize("given", ["client=", "the current client"])
def test_other_processes_connect_with_the_files_of_the_client(encrypted, files, elsewhere, given):
    address, process = encrypted
    with distributed.Client(address, security=settings(files, "files")) as client:
        stream = af.stream(PIDS, "numpy", client=client if given == "client=" else None)
        for read in (chunks.first_values, forked, elsewhere):
            assert read(stream) == [process] * 2
        again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(stream))))
    assert chunks.first_values(again) == [process] * 2


@pytest.mark.parametrize("given", ["client=", "the current client"])
def test_keys_in_memory_are_not_pickled(encrypted, files, elsewhere, given):
    address, process = encrypted
    with distributed.Client(address, security=settings(files, "memory")) as client:
        stream = af.stream(PIDS, "numpy", client=client if given == "client=" else None)
        for read in (chunks.first_values, forked):
            assert read(stream) == [process] * 2
        assert b"PRIVATE KEY" not in pickle.dumps(stream)
        words = r"no scheduler .*tls://.*TLS expects.*names of files, but no keys\. .*distributed\.comm\.tls"
        with pytest.raises(af.ConversionError, match=words):
            elsewhere(stream)


def test_an_address_takes_the_settings_of_the_configuration(encrypted, files, elsewhere):
    address, process = encrypted
    stream = af.stream(PIDS, "numpy", client=address)
    with configured(files):
        for read in (chunks.first_values, forked, elsewhere):
            assert read(stream) == [process] * 2
        data = pickle.dumps(stream)
    with pytest.raises(af.ConversionError, match=r"TLS expects.*distributed\.Security"):
        elsewhere(stream)
    assert chunks.first_values(pickle.loads(data)) == [process] * 2


def test_what_is_collected_while_a_client_is_made_does_not_wait_for_it(encrypted, files):
    """A thread that collects garbage may hold the lock of Dask's loops, which a client that is closed waits for."""
    address, process = encrypted
    for connects in (True, False):
        stream = af.stream(PIDS, "numpy", client=address)
        if connects:
            with configured(files):
                assert chunks.first_values(stream) == [process] * 2
        else:
            with pytest.raises(af.ConversionError, match="TLS expects"):
                chunks.first_values(stream)
        cycle = [stream]
        cycle.append(cycle)
        del stream, cycle

        def collect():
            with distributed.utils.LoopRunner._lock:
                gc.collect()

        thread = threading.Thread(target=collect, daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()


def test_where_the_files_are_elsewhere_the_configuration_holds(encrypted, files, tmp_path):
    address, process = encrypted
    copies = [str(tmp_path / Path(file).name) for file in files]
    for file, copied in zip(files, copies, strict=True):
        Path(copied).write_text(Path(file).read_text())
    with distributed.Client(address, security=settings(copies, "files")) as client:
        data = pickle.dumps(af.stream(PIDS, "numpy", client=client))
    Path(copies[0]).unlink()
    with configured(files):
        assert chunks.first_values(pickle.loads(data)) == [process] * 2


@pytest.mark.parametrize("protocol", ["tcp", "tls"])
def test_workers_see_no_connection_that_ends_at_once(protocol, files):
    security = settings(files, "files") if protocol == "tls" else None
    logger, text = logging.getLogger("distributed.comm.tcp"), io.StringIO()
    handler, level = logging.StreamHandler(text), logger.level
    with (
        local_cluster(2, protocol=protocol, security=security) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            stream = af.stream(da.ones(4, chunks=2), "numpy", client=client)
            assert len([*stream, stream[0]]) == 3
            client.sync(
                client.rpc(next(iter(client.nthreads()))).identity
            )  # after what came before
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)
    assert "handshake" not in text.getvalue()
