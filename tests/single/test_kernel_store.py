"""What is read from the store of kernels was written by this user as it is; the store stays small, and one process at a
time makes an entry."""

from __future__ import annotations

import os
import subprocess

import pytest
from warm_python import WARM

from oneflow.engine.passes.clusters.kernel_store import KernelStore, StoreError

DIGEST, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def store(tmp_path):
    return KernelStore(tmp_path / "kernels")


def entry(store: KernelStore, digest: str = DIGEST):
    return store.folder / f"{digest}.kernel"


def test_it_gives_what_it_was_given(store):
    assert store.get(DIGEST) is None
    store.put(DIGEST, b"loops")
    assert KernelStore(store.folder).get(DIGEST) == b"loops"


def test_folder_key_and_entries_are_this_users_alone(store):
    store.put(DIGEST, b"loops")
    assert store.folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (store.folder / "key", entry(store)))


@pytest.mark.parametrize("content", [b"", b"short", os.urandom(500)])
def test_a_broken_or_foreign_entry_is_as_good_as_none(store, content):
    store.put(DIGEST, b"loops")
    entry(store).write_bytes(content)
    assert store.get(DIGEST) is None


def test_an_entry_under_another_digest_is_as_good_as_none(store):
    store.put(DIGEST, b"loops")
    entry(store).rename(entry(store, OTHER))
    assert store.get(OTHER) is None


def test_an_entry_that_others_can_write_is_as_good_as_none(store):
    store.put(DIGEST, b"loops")
    entry(store).chmod(0o666)
    assert store.get(DIGEST) is None


def test_a_link_is_as_good_as_none(store, tmp_path):
    store.put(DIGEST, b"loops")
    entry(store).rename(tmp_path / "elsewhere")
    entry(store).symlink_to(tmp_path / "elsewhere")
    assert store.get(DIGEST) is None


@pytest.mark.parametrize(
    "spoil", [lambda key: key.chmod(0o644), lambda key: key.write_bytes(b"known"), lambda key: key.unlink()]
)
def test_a_key_that_others_may_know_is_replaced_and_entries_with_it(store, spoil):
    store.put(DIGEST, b"loops")
    spoil(store.folder / "key")
    again = KernelStore(store.folder)
    assert again.get(DIGEST) is None
    again.put(DIGEST, b"loops")
    assert again.get(DIGEST) == b"loops"


def test_a_folder_that_was_open_to_others_is_closed(store):
    store.folder.chmod(0o777)
    assert KernelStore(store.folder).folder.stat().st_mode & 0o777 == 0o700


def test_what_is_no_folder_of_this_user_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="kernels cannot be kept in"):
        KernelStore(tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="is not a folder of this user"):
        KernelStore(tmp_path / "link")


def test_the_least_recently_used_go(tmp_path):
    store = KernelStore(tmp_path / "kernels", bound=3000)
    names = [character * 64 for character in "abc"]
    for age, name in enumerate(names):
        store.put(name, bytes(900))
        os.utime(entry(store, name), (age, age))
    assert store.get(names[0]) is not None  # used now
    store.put(OTHER[:-1] + "d", bytes(900))
    assert [store.get(name) is not None for name in names] == [True, False, True]
    assert not [
        path for path in store.folder.iterdir() if path.suffix not in (".kernel", "") or path.name.startswith("tmp")
    ]


def test_who_makes_an_entry_keeps_other_processes_waiting(store):
    program = f"""
import sys
from pathlib import Path
from oneflow.engine.passes.clusters.kernel_store import KernelStore
store = KernelStore(Path({str(store.folder)!r}))
sys.stdin.read()
print("ready", flush=True)
with store.locked({DIGEST!r}):
    print(store.get({DIGEST!r}), flush=True)
"""
    with subprocess.Popen(
        [*WARM.command(), "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None and other.stdout is not None
        with store.locked(DIGEST):
            other.stdin.close()
            assert other.stdout.readline() == "ready\n"
            with store.locked(OTHER):  # which is free
                store.put(DIGEST, b"loops")
        assert other.stdout.readline() == "b'loops'\n"
    assert other.returncode == 0
