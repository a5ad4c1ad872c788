"""Clusters of Dask on this machine."""

import contextlib
import shutil
import subprocess

import dask
import distributed
import pytest


@contextlib.contextmanager
def local_cluster(workers=1, *, processes=False, threads_per_worker=1, **options):
    """Start a cluster whose processes end with this one."""
    with (
        dask.config.set({"distributed.worker.daemon": True}),
        distributed.LocalCluster(
            n_workers=workers,
            processes=processes,
            threads_per_worker=threads_per_worker,
            dashboard_address=":0",
            **options,
        ) as cluster,
    ):
        yield cluster


def certificate(folder):
    """Make a certificate that is its own authority, and return the names of its file and that of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl, which makes certificates")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*new, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def tls_settings(cert, key):
    """Return the arguments of a `distributed.Security` whose roles share a certificate: names of files, or contents."""
    roles = ("client", "scheduler", "worker")
    own = {f"tls_{role}_{name}": x for role in roles for name, x in (("cert", cert), ("key", key))}
    return {"tls_ca_file": cert, "require_encryption": True, **own}
