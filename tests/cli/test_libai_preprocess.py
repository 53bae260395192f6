"""The program that turns texts into token files: what it writes, with any number of workers, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from libai_texts import BERT_WORDS, bert_file, byte_files, piece_file
from tqdm import tqdm
from warm_python import WARM

from libai.data.data_utils import get_indexed_dataset
from libai.data.data_utils.sentence_splitting import split_sentences
from libai.preprocess import Encoder, main
from libai.tokenizer import BertTokenizer, GPT2Tokenizer, T5Tokenizer

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 and later, of fork()
DOCUMENTS = ["the quick fox. Hello world!", "", "hello the fox jumped over.\n\nThe world", "the fox", "  "]


def lines(folder, documents=DOCUMENTS, name="text.json", **more):
    (folder / name).write_text(
        "".join(json.dumps({"text": text, **more}) + "\n" for text in documents) + "\n", encoding="utf-8"
    )
    return str(folder / name)


def sequences(prefix, impl="infer"):
    found = get_indexed_dataset(prefix, impl, True)
    return [one.tolist() for one in found[:]], found.doc_idx.tolist(), found


def bert(folder, *more):
    return [
        "--tokenizer-name",
        "BertTokenizer",
        "--vocab-file",
        bert_file(folder),
        "--output-prefix",
        str(folder / "new" / "out"),
        *more,
    ]


@pytest.mark.parametrize("impl", ["mmap", "lazy", "cached"])
def test_a_line_is_a_document_and_a_sentence_a_sequence(tmp_path, impl, capsys):
    source, tokenizer = lines(tmp_path), BertTokenizer(bert_file(tmp_path))
    for split in ([], ["--split-sentences"]):
        (prefix,) = main(["--input", source, *bert(tmp_path, "--do-lower-case", "--dataset-impl", impl, *split)])
        assert prefix == str(tmp_path / "new" / f"out_text_{'sentence' if split else 'document'}")
        texts = [[one for one in (split_sentences(text) if split else [text])] for text in DOCUMENTS if text.strip()]
        found, documents, dataset = sequences(prefix, impl)
        assert found == [tokenizer.encode(one) for sentences in texts for one in sentences]
        assert documents == ([0, 2, 4, 5] if split else [0, 1, 2, 3])
        assert dataset[0].dtype == ("uint16" if impl == "mmap" else "int32")
    told = capsys.readouterr()
    assert "out_text_sentence: 3 documents, 5 sequences, " in told.out and told.err == ""


def test_several_keys_files_and_workers_keep_the_order(tmp_path, capfd):
    source = [
        lines(tmp_path, [f"{'the ' * (i % 7)}fox" for i in range(150)], f"{part}.json", title="hello") for part in "ab"
    ]
    flags = ["--input", *source, "--json-keys", "text", "title", *bert(tmp_path), "--log-interval", "100"]
    contents = []
    for workers in ("1", "3"):
        prefixes = main([*flags, "--workers", workers])
        contents.append([Path(prefix + end).read_bytes() for prefix in prefixes for end in (".bin", ".idx")])
        assert [line.split(" (")[0] for line in capfd.readouterr().err.splitlines()] == [
            f"Processed {count} documents" for count in (100, 200, 300)
        ]
    assert contents[0] == contents[1] and [Path(prefix).name for prefix in prefixes] == [
        "out_text_document",
        "out_title_document",
    ]
    found, documents, _ = sequences(prefixes[0])
    assert len(documents) == 301 and [len(one) for one in found] == [i % 7 + 1 for i in range(150)] * 2


def test_documents_end_with_a_token_of_their_own_if_asked(tmp_path):
    source, (vocab, merges) = lines(tmp_path, ["the fox", "dog"]), byte_files(tmp_path)
    flags = ["--input", source, "--output-prefix", str(tmp_path / "out"), "--append-eod"]
    (prefix,) = main([*flags, "--tokenizer-name", "GPT2Tokenizer", "--vocab-file", vocab, "--merges-file", merges])
    tokenizer = GPT2Tokenizer(vocab, merges)
    assert sequences(prefix)[0] == [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in ("the fox", "dog")]
    (prefix,) = main([*flags, *bert(tmp_path), "--split-sentences", "--extra-ids", "3"])
    assert sequences(prefix)[0][0][-1] == 0 and len(BERT_WORDS) > 3  # BERT has padding for that
    (prefix,) = main([*flags, "--tokenizer-name", "T5Tokenizer", "--vocab-file", piece_file(tmp_path)])
    tokenizer = T5Tokenizer(str(tmp_path / "spiece.model"))
    assert sequences(prefix)[0][1] == [*tokenizer.encode("dog"), tokenizer.eos_token_id]


def test_chinese_words_are_marked(tmp_path):
    (prefix,) = main(["--input", lines(tmp_path, ["中国 the"]), *bert(tmp_path, "--do-chinese-wwm", "--do-lower-case")])
    assert sequences(prefix)[0] == [[BERT_WORDS.index(token) for token in ("中", "##国", "the")]]


def test_sentences_by_punctuation():
    assert split_sentences('Mr. A. Smith left, e.g. today. He said "No!" Then 3.5 km... and so on. U.S. ships? Yes.') == [
        "Mr. A. Smith left, e.g. today.", 'He said "No!"', "Then 3.5 km... and so on.", "U.S. ships?", "Yes.",
    ]  # fmt: skip
    assert split_sentences("你好。今天好！“对吗？”是") == ["你好。", "今天好！", "“对吗？”", "是"]
    assert (
        split_sentences("one\ntwo\n\nthree. Four\n") == ["one two", "three.", "Four"] and split_sentences(" \n") == []
    )
    kept = split_sentences("one\ntwo\n\nthree. Four\n", keep_newlines=True)
    assert kept == ["one\ntwo\n\n", "three. ", "Four\n"] and "".join(kept) == "one\ntwo\n\nthree. Four\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_a_bar(tmp_path, monkeypatch):
    monkeypatch.setattr(tqdm, "monitor_interval", 0)  # no thread of its own
    monkeypatch.setattr(sys, "stderr", Terminal())
    main(["--input", lines(tmp_path, ["the fox"] * 20), *bert(tmp_path), "--log-interval", "5"])
    assert "B/s" in sys.stderr.getvalue() and "Processed" not in sys.stderr.getvalue()


@pytest.mark.parametrize(
    ("documents", "flags", "message"),
    [
        (None, [], "text.json, line 2: no JSON object: Expecting"),
        (
            ["the"],
            ["--json-keys", "body"],
            r"line 1: there is no text 'body', only \['text'\]; --json-keys names the texts",
        ),
        (["", " "], [], "no document has tokens of 'text': no file was written"),
        (["the"], ["--workers", "0"], "--workers and --log-interval are 1 or more, got 0 and 1000"),
        (["the"], ["--merges-file", "m"], "BertTokenizer has no --merges-file"),
        (["the"], ["--tokenizer-name", "GPT2Tokenizer"], "GPT2Tokenizer needs --merges-file"),
        (
            ["the"],
            ["--tokenizer-name", "T5Tokenizer", "--do-lower-case"],
            "--do-lower-case is for BertTokenizer, not for T5Tokenizer",
        ),
        (["the"], ["--input", "nothing"], "--input: there is no file 'nothing'"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_what_cannot_be_read_is_said(tmp_path, documents, flags, message, workers):
    source = lines(tmp_path, documents or ["the"])
    if documents is None:
        Path(source).write_text('{"text": "the"}\n{"text": \n')
    with pytest.raises(ValueError, match=message):
        main(["--input", source, *bert(tmp_path), "--workers", str(workers), *flags])
    assert not list(tmp_path.rglob("*.bin")) and not list(tmp_path.rglob("*.tmp"))


def test_what_is_no_text_is_said(tmp_path):
    (tmp_path / "latin.json").write_bytes(b'{"text": "caf\xe9"}\n')
    with pytest.raises(ValueError, match="latin.json, line 1: no text in UTF-8"):
        main(["--input", str(tmp_path / "latin.json"), *bert(tmp_path)])


def test_a_worker_that_ends_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(Encoder, "__call__", lambda self, lines: os._exit(1))
    with pytest.raises(ValueError, match="a worker has ended: it was killed, perhaps for want of memory"):
        main(["--input", lines(tmp_path), *bert(tmp_path), "--workers", "2"])


@pytest.mark.parametrize("program", [[str(ROOT / "tools" / "preprocess_data.py")], ["-m", "libai.preprocess"]])
def test_the_program_runs_from_the_repository_and_from_the_package(tmp_path, program):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}

    def run(*flags):
        return subprocess.run(
            [*WARM.command(), *program, *flags],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )  # noqa: E731

    done = run("--input", lines(tmp_path), *bert(tmp_path))
    assert done.returncode == 0 and "3 documents" in done.stdout and done.stderr == ""
    done = run("--input", "none", *bert(tmp_path))
    assert done.returncode == 1 and done.stderr == "DataError: --input: there is no file 'none'\n"
