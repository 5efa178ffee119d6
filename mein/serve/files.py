"""A CSV in, the same CSV labeled out: through the disk, so that memory stays flat and errors come first."""

import asyncio
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from mein.data.columns import find_text_column, remedy
from mein.data.formats import open_writer
from mein.data.labels import Label
from mein.data.readers import plain_text, read_tables
from mein.errors import InputError
from mein.model.model import Model
from mein.predict.predict import free_name
from mein.serve.batching import Batcher, Predict
from mein.serve.guard import Refused
from mein.serve.schema import ServeSettings

CHUNK_BYTES = 1 << 16
POLL_SECONDS = 0.25
STOP_SECONDS = 2.0
TYPES = {"text/csv", "application/csv", "application/vnd.ms-excel"}  # Windows sends the last one


class CsvLabeler:
    """Labels files, a few at a time."""

    def __init__(self, model: Model, batcher: Batcher, settings: ServeSettings) -> None:
        self._model = model
        self._batcher = batcher
        self._settings = settings
        self._folders: set[Path] = set()  # of the files in hand

    async def answer(self, request: Request, text_column: str | None) -> Response:
        """The labeled file; nothing of it is sent before all of it is labeled."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in TYPES:
            raise Refused(415, "The body is not declared as CSV: send it with `Content-Type: text/csv`.")
        if len(self._folders) >= self._settings.files:
            sentence = f"{len(self._folders)} files are being labeled: try again later."
            raise Refused(503, sentence, retry_after="5")
        folder = Path(tempfile.mkdtemp(prefix="mein-serve-"))
        self._folders.add(folder)
        try:
            source, target = folder / "upload.csv", folder / "labeled.csv"
            await _store(request, source)
            rows = await self._label(request, source, target, text_column)
            request.scope["mein.texts"] = rows
            labeled = target.open("rb")
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # an open file lives on until it is closed
            self._folders.remove(folder)
        headers = {"content-disposition": 'attachment; filename="labeled.csv"', "x-rows": str(rows)}
        return StreamingResponse(_parts(labeled), media_type="text/csv; charset=utf-8", headers=headers)

    async def stop(self) -> None:
        """Wait a moment for canceled files, then remove what is left of them.

        The server itself does not wait for their cleanup.
        """
        deadline = time.monotonic() + STOP_SECONDS
        while self._folders and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    async def _label(self, request: Request, source: Path, target: Path, text_column: str | None) -> int:
        """Label in a thread; it stops soon after the client has gone or the time is up."""
        is_off = threading.Event()
        column = self._model.config.columns.text if text_column is None else text_column
        predict = self._predictor(asyncio.get_running_loop(), is_off)
        classes = self._model.labels.classes
        work = asyncio.ensure_future(asyncio.to_thread(label_csv, source, target, column, classes, predict))
        try:
            async with asyncio.timeout(self._settings.file_seconds):
                while not (await asyncio.wait({work}, timeout=POLL_SECONDS))[0]:
                    if await request.is_disconnected():
                        is_off.set()
            return await work
        except TimeoutError as problem:
            raise Refused(
                503, f"Labeling took more than {self._settings.file_seconds:g} seconds: send fewer rows."
            ) from problem
        except InputError as problem:
            if is_off.is_set():
                raise ClientDisconnect from problem
            sentence = str(problem).replace(str(source), "The file")
            sentence = sentence.replace(remedy("text"), "name it with ?text_column=NAME")
            raise Refused(422, sentence) from problem
        finally:
            is_off.set()
            await asyncio.wait({work})

    def _predictor(self, loop: asyncio.AbstractEventLoop, is_off: threading.Event) -> Predict:
        """Run the model from a thread, a batch at a time, so that other requests get their turn."""
        done = 0

        def predict(texts: list[str]) -> np.ndarray:
            nonlocal done
            most = self._settings.text_characters
            for row, text in enumerate(texts, start=done + 1):
                if len(text) > most:
                    raise InputError(f"Row {row} holds a text of more than {most:,} characters: shorten it.")
            done += len(texts)
            size, found = self._settings.batch_texts, []
            for start in range(0, len(texts), size):
                if is_off.is_set():
                    raise InputError("The file was canceled.")
                part = self._batcher.log_probs(texts[start : start + size])
                found.append(asyncio.run_coroutine_threadsafe(part, loop).result())
            return np.concatenate(found)

        return predict


def label_csv(
    source: Path, target: Path, text_column: str | None, classes: Sequence[Label], predict: Predict
) -> int:
    """Write the rows of a CSV with a label and its probability, named as `mein predict` does; how many."""
    rows, column, new = 0, "", ("", "")
    with open_writer(target) as writer:
        for batch in read_tables(str(source)):
            names = batch.schema.names
            if not rows:
                column = find_text_column(names, text_column, str(source))
                new = (free_name(names, "label"), free_name(names, "probability"))
            values = batch.column(column).to_pylist()
            texts = [plain_text(value, f"Row {row}") for row, value in enumerate(values, start=rows + 1)]
            log_probs = predict(texts)
            best = log_probs.argmax(axis=1)
            table = pa.Table.from_batches([batch])
            table = table.append_column(new[0], pa.array([str(classes[i]) for i in best.tolist()]))
            writer.write(table.append_column(new[1], pa.array(np.exp(log_probs.max(axis=1)))))
            rows += len(texts)
    return rows


async def _store(request: Request, target: Path) -> None:
    with target.open("wb") as file:
        async for part in request.stream():
            file.write(part)


async def _parts(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while part := file.read(CHUNK_BYTES):
            yield part
