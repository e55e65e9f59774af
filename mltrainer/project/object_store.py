"""An object store as a project's copy: each content under its digest, and a list of the files that comes last.

Contents are only added, and the list is replaced as one object: of a copy that was cut off, the list before still holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mltrainer.configs.addresses import REFUSED, holds_secret
from mltrainer.errors import InputError, InUseError
from mltrainer.leftovers import new_file, new_folder, sweep_below
from mltrainer.project.stored_files import MOST_LISTED, Listed, Manifest, read, written
from mltrainer.tasks.stored.location import is_remote
from mltrainer.tasks.stored.stores import answering, is_folder_here, store_of
from mltrainer.workspace import machine_faults, new_whole, sha256_bytes, sha256_file, sync, write_atomic

AT_ONCE = 16 << 20  # bytes of a request; a smaller file is sent by one
WITH_FOLDERS = ("file", "local", "sftp", "ssh", "smb", "ftp", "hdfs")  # others make a bucket where one is asked for a folder
PUSH_AGAIN = "remove this object, and push again from where the file is whole"
Moved = Callable[[int], None]  # called with the number of copied bytes


class ChangedError(Exception):
    """A file changed, or went away, while it was sent."""


def check_address(address: str) -> str:
    """Return the address of a store without a slash at its end.

    Raises:
        InputError: It is no address, or contains a secret.
    """
    if holds_secret(address):
        raise InputError(REFUSED, where="the store's address")
    if not is_remote(address):
        hint = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder"
        raise InputError("no address of a store", where=address, hint=hint)
    return address.rstrip("/")


class ObjectStore:
    """A store at an address.

    Args:
        address: The store's address, as fsspec reads it, such as `s3://bucket/prefix`.
        again: The way to bring a damaged content back, for messages.

    Raises:
        InputError: It is no address, holds a secret, or the package that reaches it is not installed.
    """

    def __init__(self, address: str, again: str = PUSH_AGAIN) -> None:
        self.address, self._again = check_address(address), again
        self._store, root = store_of(self.address)
        self._root = root.rstrip("/")
        self._has_folders, self._is_here = self.address.partition("://")[0] in WITH_FOLDERS, is_folder_here(self.address)
        self._store.invalidate_cache()  # of listings, by an earlier call in this process
        self.list_address = f"{self.address}/manifest.json"

    def listed(self) -> tuple[Manifest | None, bytes]:
        """Return the list of the store's files, None if there is none, and its text.

        Raises:
            InputError: It cannot be read, or is damaged.
        """
        text = self.text("manifest.json")
        return (None, b"") if text is None else (read(text, self.list_address), text)

    def text(self, name: str, most: int = MOST_LISTED) -> bytes | None:
        """Return the bytes of an object by its name, at most `most`; None if there is none.

        Raises:
            InputError: It cannot be read, or has more bytes.
        """
        found = None
        with self._answering(name), contextlib.suppress(FileNotFoundError):
            found = bytes(self._store.cat_file(f"{self._root}/{name}", start=0, end=most + 1))
        if found is not None and len(found) > most:
            place = f"{self.address}/{name}"
            raise InputError(
                f"more than {most} bytes, which no object of its kind has", where=place, hint="bring the object back"
            )
        return found

    def names(self, folder: str, pattern: str) -> list[str]:
        """Return the sorted paths, from a folder of the store on, that a pattern matches as a whole."""
        with self._answering(folder), contextlib.suppress(FileNotFoundError):
            self._store.invalidate_cache()
            begin = len(f"{self._root}/{folder}/".lstrip("/"))
            found = (path.lstrip("/")[begin:] for path in self._store.find(f"{self._root}/{folder}"))
            return sorted(path for path in found if re.fullmatch(pattern, path))
        return []

    def create(self, name: str, data: bytes) -> bool:
        """Write a new object, whole or not at all; return False if there is another one of that name.

        Of several writers at once one alone writes it: in a folder of this machine, and in stores that put on a condition, such
        as S3, Google Cloud Storage and Azure.
        """
        try:
            with self._answering(name):
                self._put_new(f"{self._root}/{name}", data)
        except InputError:
            if (there := self.text(name)) is None:
                raise
            return there == data
        return self.text(name) == data  # of a store without conditions the last writer's is there

    def _put_new(self, path: str, data: bytes) -> None:
        """Write an object in place of none.

        Raises:
            FileExistsError: There is one; the type of error differs by the kind of store.
        """
        if not self._is_here:
            self._store.pipe_file(path, data, mode="create")
            return
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with machine_faults(path), new_folder(target.parent) as folder:
            write_atomic(folder / target.name, data)
            target.hardlink_to(folder / target.name)
            sync(target.parent)

    def sizes(self) -> dict[str, int]:
        """Return the size in bytes of each content in the store, by its digest."""
        with self._answering("objects"), contextlib.suppress(FileNotFoundError):
            self._store.invalidate_cache()
            rows = self._store.find(f"{self._root}/objects", detail=True)
            return {path.rpartition("/")[2]: int(row["size"]) for path, row in rows.items()}
        return {}

    def replace_list(self, manifest: Manifest, before: bytes) -> None:
        """Write a list in place of the one that was read.

        Raises:
            InUseError: Another one is there by now.
        """
        if self.listed()[1] != before:
            message = f"another project or machine wrote into {self.address} meanwhile"
            raise InUseError(message, hint="type the same command again: it reads the new state first")
        with self._answering("manifest.json"):
            if self._is_here:
                self._put(f"{self._root}/manifest.json", written(manifest))
                return
            # By another name first: a folder's file that is written in place could be read, or left, half.
            self._store.pipe_file(f"{self._root}/manifest.json.new", written(manifest))
            self._store.mv(f"{self._root}/manifest.json.new", f"{self._root}/manifest.json")

    def sweep(self) -> None:
        """Remove what killed commands left half-written, in a folder of this machine; other stores keep no half objects."""
        if self._is_here:
            sweep_below(Path(self._root))

    def remove(self, digests: Iterable[str]) -> None:
        """Remove contents; a missing one is no fault."""
        for sha256 in digests:
            with self._answering(_place(sha256)), contextlib.suppress(FileNotFoundError):
                self._store.rm_file(self._path(sha256))

    def send(self, file: Path, row: Listed, moved: Moved) -> None:
        """Write a file's content under its digest, up to its listed size, since a log grows meanwhile.

        Raises:
            ChangedError: The content has changed, or the file is gone; then no part of it stays in the store.
            InputError: The store does not take it.
        """
        try:
            with open(file, "rb") as content:
                sent = self._send(content, row, moved)
        except FileNotFoundError as error:
            raise ChangedError(str(file)) from error
        if sent != row.sha256:
            self.remove([row.sha256])
            raise ChangedError(str(file))

    def _send(self, content: BinaryIO, row: Listed, moved: Moved) -> str:
        """Write the first bytes of a file, and return the digest of the written, or intended, bytes."""
        path, total = self._path(row.sha256), hashlib.sha256()
        with self._answering(_place(row.sha256)):
            if self._has_folders:
                self._store.makedirs(path.rpartition("/")[0], exist_ok=True)
            if row.size <= AT_ONCE:
                data = content.read(row.size)
                if (digest := sha256_bytes(data)) == row.sha256:
                    self._put(path, data)
                    moved(len(data))
                return digest
            with self._opened(path) as there:
                for data in _pieces(content, row.size):
                    there.write(data)
                    total.update(data)
                    moved(len(data))
        return total.hexdigest()

    def _put(self, path: str, data: bytes) -> None:
        write_atomic(Path(path), data) if self._is_here else self._store.pipe_file(path, data)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        """Yield a file to write an object to, which in a folder of this machine has its name when it is whole."""
        if not self._is_here:
            with self._store.open(path, "wb") as there:
                yield there
            return
        with new_whole(Path(path)) as temporary, open(temporary, "wb") as there:
            yield there

    def holds(self, row: Listed) -> bool:
        """Return True if the store has a content of this digest, which is read whole."""
        total, size = hashlib.sha256(), 0
        try:
            with self._answering(_place(row.sha256)), self._store.open(self._path(row.sha256), "rb") as content:
                for data in _pieces(content, row.size + 1):
                    total.update(data)
                    size += len(data)
        except InputError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return False
            raise
        return (size, total.hexdigest()) == (row.size, row.sha256)

    def fetch(self, row: Listed, name: str, folder: Path, moved: Moved) -> Path:
        """Return the file of a folder with a content of this digest, fetched if it is not there yet.

        Args:
            row: The content.
            name: The file that it belongs into, for messages.
            folder: The folder where it waits under its digest until all have arrived.
            moved: Told of bytes that arrived.

        Raises:
            InputError: The fetched content has another digest.
        """
        target = folder / row.sha256
        if target.is_file() and sha256_file(target) == row.sha256:  # of a copy that was cut off
            moved(row.size)
            return target
        with machine_faults(str(target)):
            descriptor, temporary = new_file(folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    digest = self._fetch(row, file, moved)
                    if digest != row.sha256:
                        raise self.damaged(name, row, f"its content has the digest {digest[:12]}...")
                    temporary.rename(target)
            finally:
                temporary.unlink(missing_ok=True)
        return target

    def _fetch(self, row: Listed, file: BinaryIO, moved: Moved) -> str:
        total = hashlib.sha256()
        for start in range(0, row.size, AT_ONCE):
            with self._answering(_place(row.sha256)):
                data = bytes(self._store.cat_file(self._path(row.sha256), start=start, end=min(start + AT_ONCE, row.size)))
            if not data:  # it is shorter than listed, by however much
                break
            file.write(data)
            total.update(data)
            moved(len(data))
        file.flush()
        return total.hexdigest()

    def damaged(self, name: str, row: Listed, found: str) -> InputError:
        """Return the error of a content that differs from the list."""
        message = f"{name} is not in the store as it was sent: {found}; expected {row.sha256[:12]}... of {row.size} bytes"
        where = f"{self.address}/{_place(row.sha256)}"
        return InputError(message, where=where, hint=f"nothing was replaced; {self._again}")

    def _path(self, sha256: str) -> str:
        return f"{self._root}/{_place(sha256)}"

    def _answering(self, place: str) -> contextlib.AbstractContextManager[None]:
        # A pipe in an object's place would let a reader wait for ever.
        if self._is_here and (path := Path(self._root, place)).exists() and not (path.is_file() or path.is_dir()):
            raise InputError("neither a file nor a folder", where=f"{self.address}/{place}", hint="remove it")
        return answering(f"{self.address}/{place}", bring="check that the bucket exists, then type the same command again")


def _place(sha256: str) -> str:
    return f"objects/{sha256[:2]}/{sha256}"


def _pieces(content: Any, size: int) -> Iterator[bytes]:
    while size > 0 and (data := content.read(min(size, AT_ONCE))):
        yield data
        size -= len(data)
