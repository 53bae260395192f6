"""``python -m libai.preprocess --input text.json ...``: texts into token files. ``tools/preprocess_data.py`` is the
same program.

Each line of the input is a JSON object. A key of it makes the files ``<prefix>_<key>_document.bin`` and ``.idx``, or
``_sentence`` with ``--split-sentences``: a document for each line, a sequence for each sentence.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from typing import Any

from libai.data.data_utils import indexed_dataset as indexed
from libai.data.data_utils.sentence_splitting import split_sentences
from libai.tokenizer import BertTokenizer, GPT2Tokenizer, RobertaTokenizer, T5Tokenizer, build_tokenizer
from oneflow.engine.core.errors import ArgumentError, DataError, OneFlowError

_TOKENIZERS = {cls.__name__: cls for cls in (BertTokenizer, GPT2Tokenizer, T5Tokenizer, RobertaTokenizer)}
_CHUNK = 64  # lines that a worker gets at once
_T5_SENTINELS = 100

Line = tuple[str, int, str]  # file, number, text


def argument_parser() -> argparse.ArgumentParser:
    """The flags of the program."""
    parser = argparse.ArgumentParser(prog="preprocess_data.py", description="Texts into token files.")
    add = parser.add_argument_group("input").add_argument
    add("--input", nargs="+", required=True, metavar="FILE", help="files with one JSON object on each line")
    add(
        "--json-keys",
        nargs="+",
        default=["text"],
        metavar="KEY",
        help="the texts of an object that are used, each for files of its own",
    )
    add("--split-sentences", action="store_true", help="a sequence for each sentence, as BERT, RoBERTa and T5 need it")
    add("--keep-newlines", action="store_true", help="leave line ends in sentences")
    add = parser.add_argument_group("tokenizer").add_argument
    add("--tokenizer-name", required=True, choices=list(_TOKENIZERS))
    add("--vocab-file", required=True)
    add("--merges-file", help="of GPT2Tokenizer and RobertaTokenizer")
    add("--do-lower-case", action="store_true", help="of BertTokenizer")
    add(
        "--do-chinese-wwm",
        action="store_true",
        help="of BertTokenizer: mark Chinese words, so that they are masked whole",
    )
    add("--extra-ids", type=int, help="how many sentinels there are, for T5")
    add("--append-eod", action="store_true", help="end every document with a token for that")
    add = parser.add_argument_group("output").add_argument
    add("--output-prefix", required=True, help="the beginning of the names of files, without their keys and endings")
    add("--dataset-impl", default="mmap", choices=indexed.get_available_dataset_impl())
    add("--workers", type=int, default=1, help="processes that tokenize")
    add("--log-interval", type=int, default=1000, help="documents from one report to the next")
    return parser


@dataclass
class Encoder:
    """Lines into numbers; what a worker is given."""

    tokenizer: Any
    keys: Sequence[str]
    is_split: bool
    keep_newlines: bool
    append_eod: bool

    def __call__(self, lines: Sequence[Line]) -> list[dict[str, list[list[int]]]]:
        return [self.document(*line) for line in lines]

    def document(self, file: str, number: int, text: str) -> dict[str, list[list[int]]]:
        """The sentences of each key of a line, as numbers; none of an empty text."""
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise DataError(f"{file}, line {number}: no JSON object: {error}") from None
        found = {}
        for key in self.keys:
            value = content.get(key) if isinstance(content, dict) else None
            if not isinstance(value, str):
                known = sorted(content) if isinstance(content, dict) else type(content).__name__
                raise DataError(
                    f"{file}, line {number}: there is no text {key!r}, only {known}; --json-keys names the texts"
                )
            found[key] = self._sentences(value)
        return found

    def _sentences(self, text: str) -> list[list[int]]:
        parts = split_sentences(text, self.keep_newlines) if self.is_split else [text]
        sentences = [
            numbers
            for part in parts
            if (numbers := self.tokenizer.convert_tokens_to_ids(self.tokenizer.tokenize(part)))
        ]
        if sentences and self.append_eod:
            sentences[-1].append(self.tokenizer.eod_token_id)
        return sentences


def main(arguments: Sequence[str] | None = None) -> list[str]:
    """Runs the program of the command line; returns the prefixes of the files that it has made."""
    args = argument_parser().parse_args(arguments)
    if args.workers < 1 or args.log_interval < 1:
        raise ArgumentError(f"--workers and --log-interval are 1 or more, got {args.workers} and {args.log_interval}")
    for path in args.input:
        if not os.path.isfile(path):
            raise DataError(f"--input: there is no file {path!r}")
    encoder = Encoder(_tokenizer(args), args.json_keys, args.split_sentences, args.keep_newlines, args.append_eod)
    level = "sentence" if args.split_sentences else "document"
    prefixes = {key: f"{args.output_prefix}_{key}_{level}" for key in args.json_keys}
    os.makedirs(os.path.dirname(os.path.abspath(args.output_prefix)), exist_ok=True)
    builders = {
        key: indexed.make_builder(indexed.data_file_path(prefix), args.dataset_impl, len(encoder.tokenizer))
        for key, prefix in prefixes.items()
    }
    counts = dict.fromkeys(args.json_keys, (0, 0, 0))
    for document in _encoded(encoder, args):
        for key, sentences in document.items():
            for sentence in sentences:
                builders[key].add_item(sentence)
            if sentences:
                builders[key].end_document()
                counts[key] = tuple(a + b for a, b in zip(counts[key], (1, len(sentences), sum(map(len, sentences)))))  # type: ignore[assignment]
    for key, prefix in prefixes.items():
        if not counts[key][0]:
            raise DataError(f"no document has tokens of {key!r}: no file was written")
        builders[key].finalize(indexed.index_file_path(prefix))
        print(
            f"{prefix}: {counts[key][0]} documents, {counts[key][1]} sequences, {counts[key][2]} tokens, "
            f"{builders[key].dtype}"
        )
    return list(prefixes.values())


def _tokenizer(args: argparse.Namespace) -> Any:
    cls: Any = _TOKENIZERS[args.tokenizer_name]
    is_bert, has_merges = cls is BertTokenizer, cls in (GPT2Tokenizer, RobertaTokenizer)
    for flag, value in (("--do-lower-case", args.do_lower_case), ("--do-chinese-wwm", args.do_chinese_wwm)):
        if value and not is_bert:
            raise ArgumentError(f"{flag} is for BertTokenizer, not for {args.tokenizer_name}")
    if has_merges != (args.merges_file is not None):
        raise ArgumentError(f"{args.tokenizer_name} {'needs' if has_merges else 'has no'} --merges-file")
    given: dict[str, Any] = {"vocab_file": args.vocab_file}
    if is_bert:
        given |= {"do_lower_case": args.do_lower_case, "do_chinese_wwm": args.do_chinese_wwm}
    elif has_merges:
        given |= {"merges_file": args.merges_file}
    if cls is T5Tokenizer:
        given["extra_ids"] = _T5_SENTINELS if args.extra_ids is None else args.extra_ids
    elif args.extra_ids:
        given["additional_special_tokens"] = [f"<extra_id_{i}>" for i in range(args.extra_ids)]
    return build_tokenizer({"tokenizer": {"_target_": cls, **given}, "append_eod": args.append_eod})


def _encoded(encoder: Encoder, args: argparse.Namespace) -> Iterator[dict[str, list[list[int]]]]:
    """The documents of all lines, in their order."""
    report = _Report(sum(map(os.path.getsize, args.input)), args.log_interval)
    chunks = _chunks(_lines(args.input, report))
    with report:
        for documents in map(encoder, chunks) if args.workers == 1 else _by_workers(encoder, chunks, args.workers):
            for document in documents:
                report.document()
                yield document


def _lines(paths: Iterable[str], report: _Report) -> Iterator[Line]:
    for path in paths:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                report.read += len(line)
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise DataError(f"{path}, line {number}: no text in UTF-8: {error.reason}") from None
                if text.strip():
                    yield path, number, text


def _chunks(lines: Iterator[Line]) -> Iterator[list[Line]]:
    while chunk := list(islice(lines, _CHUNK)):
        yield chunk


def _by_workers(
    encoder: Encoder, chunks: Iterator[list[Line]], workers: int
) -> Iterator[list[dict[str, list[list[int]]]]]:
    """Chunks by several processes; no more of the input is read ahead than they need."""
    with ProcessPoolExecutor(
        workers, multiprocessing.get_context("fork"), initializer=_begin, initargs=(encoder,)
    ) as pool:
        waiting: deque[Future[Any]] = deque()
        try:
            for chunk in chunks:
                waiting.append(pool.submit(_encode, chunk))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise DataError(
                "a worker has ended: it was killed, perhaps for want of memory; use fewer --workers"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


_own: list[Encoder] = []  # of a worker: the encoder is sent once, not with every chunk


def _begin(encoder: Encoder) -> None:
    _own[:] = [encoder]


def _encode(lines: Sequence[Line]) -> list[dict[str, list[list[int]]]]:
    return _own[0](lines)


class _Report:
    """How far the program is, on stderr: a bar on a terminal, else a line after every ``interval`` documents."""

    def __init__(self, total: int, interval: int) -> None:
        self._total, self._interval = total, interval
        self._documents, self.read, self._start = 0, 0, time.perf_counter()

    def __enter__(self) -> _Report:
        self._bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=self._total, unit="B", unit_scale=True, dynamic_ncols=True, leave=False)
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def document(self) -> None:
        """A document is done."""
        self._documents += 1
        if self._documents % self._interval:
            return
        if self._bar is not None:
            self._bar.update(self.read - self._bar.n)
            return
        seconds = max(time.perf_counter() - self._start, 1e-9)
        rate = self.read / seconds / 2**20
        print(
            f"Processed {self._documents} documents ({self._documents / seconds:.0f} docs/s, {rate:.2f} MB/s).",
            file=sys.stderr,
        )


def run() -> None:
    """The program: an error that says what to do is printed without the way through this package."""
    try:
        main()
    except OneFlowError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    run()
