"""The tokenizers of transformers 5, by the names of their classes, and that of ``sentencepiece``.

Most classes take only the vocabulary from a folder and have steps of their own, to which
``tokenizer_config.json`` gives arguments; ``TokenizersBackend`` takes ``tokenizer.json`` as it is.
Pieces and their characters are those of transformers, except that text that spells a special piece
stays text.
"""

import base64
import contextlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unicodedata import normalize

from tokenizers import AddedToken, Regex, normalizers, processors
from tokenizers import Tokenizer as Backend
from tokenizers import pre_tokenizers as cuts
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece

from nq.errors import check_argument
from nq.formats.tfrecord import message_fields
from nq.preprocess.tokenizers.base import ADDED, FLAGS, SPELLINGS, Tokenizer
from nq.preprocess.tokenizers.wordpiece import (
    BERT_OPTIONS,
    BERT_PIECES,
    MPNET_PIECES,
    WORD_CHARS,
    read_vocab,
    wordpiece_backend,
)

WHOLE_FILE, VOCAB, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
WHOLE, SENTENCEPIECE = "TokenizersBackend", "SentencePieceProcessor"
ALIASES = {
    "PreTrainedTokenizer": WHOLE,
    **dict.fromkeys(("DistilBertTokenizer", "ElectraTokenizer"), "BertTokenizer"),
    **dict.fromkeys(("BartTokenizer", "LongformerTokenizer"), "RobertaTokenizer"),
}
LARGEST_WORD = 1000
"""Characters of a word beyond which WordPiece gives [UNK]; its time grows with their cube."""
MAX_PIECE = 128
"""Characters of a piece of a unigram, of which all prefixes are looked up at each character."""
UNUSED = ("decoder", "truncation", "padding")
"""Parts of a ``tokenizer.json`` that are for other tasks."""
MAX_EXPANSION, EXPANSIONS = 64, {"ByteLevel": 4.0, "BertNormalizer": 3.0}
"""Characters for one of a text, of all steps and of single ones; XLM-RoBERTa's map has up to 18."""
PATTERN = re.compile(r'"Regex": ("(?:[^"\\]|\\.)*")')
BLANKS, DEBERTA_BLANKS = " {2,}", r"\s{2,}|[\n\r\t]"
KNOWN_PATTERNS = {BLANKS, DEBERTA_BLANKS}
MAP = "precompiled_charsmap"
MODELS = {".txt": "WordPiece", ".json": "BPE", ".model": "Unigram"}
"""The type of a model by the name of its own file."""
UNIGRAM, CONTROL, USER_DEFINED = 1, 3, 4  # a type of SentencePiece, and kinds of its pieces
ENDS = {"bos_token": "<s>", "eos_token": "</s>"}
ROBERTA_PIECES = {**ENDS, "unk_token": "<unk>", **MPNET_PIECES, "mask_token": "<mask>"}
SPIECE_PIECES = {**BERT_PIECES, "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "[MASK]"}
Values = dict[str, Any]
Pair = tuple[str, float]


class SentencePiece:
    """What is used here of a tokenizer of ``tokenizers``, by a processor of ``sentencepiece``."""

    def __init__(self, processor: Any, *_: Any) -> None:
        ids = {processor.id_to_piece(i): i for i in range(len(processor))}
        self._processor, self._vocabulary = processor, Backend(WordLevel(ids, "<unk>"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._vocabulary, name)

    def encode(self, text: str, **_: Any) -> SimpleNamespace:
        encoding = self._processor.encode_as_offset_mapping(text)
        words = accumulate(piece.startswith("\u2581") for piece in encoding["pieces"])
        return SimpleNamespace(**encoding, word_ids=list(words))

    def encode_batch_fast(self, texts: list[str], **_: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(ids=ids) for ids in self._processor.encode(texts)]


@dataclass(frozen=True)
class TokenizerClass:
    """A class of transformers.

    Args:
        vocabulary: the file that has the vocabulary where there is no ``tokenizer.json``.
        make: returns a tokenizer from the vocabulary, the values of arguments and special pieces,
            and the character map of SentencePiece.
        pieces: its special pieces, by the names of its arguments.
        arguments: its other arguments with their defaults.
        like_roberta: whether two separators are between question and page, in one segment.
        head, tail: the pieces before and behind those of a SentencePiece file.
        skipped: the pieces of such a file that ``head`` replaces.
    """

    vocabulary: str
    make: Callable[[Any, Values, bytes], Any]
    pieces: Mapping[str, str]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    like_roberta: bool = False
    head: Sequence[Pair] = ()
    tail: Sequence[Pair] = ()
    skipped: int = 0


def _wordpiece(vocab: dict[str, int], values: Values, _: bytes) -> Backend:
    model = WordPiece(vocab, unk_token=values["unk_token"])
    return wordpiece_backend(model, *(values[name] for name in BERT_OPTIONS))


def _byte_level(vocab: tuple[dict[str, int], Any], values: Values, _: bytes) -> Backend:
    backend, prefix = Backend(BPE(*vocab)), values["add_prefix_space"]
    backend.pre_tokenizer = cuts.ByteLevel(add_prefix_space=prefix)
    # It adds no pieces here: by it, places are without the blanks around words.
    pieces = ("</s>", 2), ("<s>", 0)
    backend.post_processor = processors.RobertaProcessing(*pieces, values["trim_offsets"], prefix)
    return backend


def _unigram(
    vocab: list[Pair],
    values: Values,
    characters: bytes,
    *,
    quotes: bool = False,
    blanks: str = "",
    cuts_at_blanks: bool = True,
    prefix: str = "never",
) -> Backend:
    """Returns a unigram; ``prefix`` says where a blank is added if not before each word."""
    unknown = {piece: i for i, (piece, _) in enumerate(vocab)}.get(values["unk_token"])
    backend = Backend(Unigram(vocab, unknown))
    steps, parts = list[Any](), list[Any]()
    if quotes:
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if blanks == BLANKS:
        steps += [normalizers.Replace(Regex(blanks), " ")]
    if quotes and not values["keep_accents"]:
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if values.get("do_lower_case"):
        steps += [normalizers.Lowercase()]
    if blanks == DEBERTA_BLANKS:
        steps += [normalizers.Replace(Regex(blanks), " "), normalizers.NFC()]
        steps += [normalizers.Strip(left=False, right=True)]
    elif characters:
        steps += [normalizers.Precompiled(characters)]
    backend.normalizer = normalizers.Sequence(steps)
    if cuts_at_blanks:
        parts += [cuts.WhitespaceSplit()]
    if values.get("split_by_punct"):
        parts += [cuts.Punctuation("isolated")]
    scheme = "always" if values["add_prefix_space"] else prefix
    backend.pre_tokenizer = cuts.Sequence([*parts, cuts.Metaspace(prepend_scheme=scheme)])
    return backend


PREFIX, MASK = {"add_prefix_space": True}, [("<mask>", 0.0)]
HEAD = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
CAMEMBERT_HEAD = [
    ("<s>NOTUSED", 0.0),
    ("<pad>", 0.0),
    ("</s>NOTUSED", 0.0),
    ("<unk>", 0.0),
    ("<unk>NOTUSED", -100.0),
]
BERT = TokenizerClass(
    "vocab.txt",
    _wordpiece,
    {**BERT_PIECES, "mask_token": "[MASK]"},
    dict(zip(BERT_OPTIONS, (True, None, True), strict=True)),
)
CLASSES = {
    "BertTokenizer": BERT,
    "MPNetTokenizer": TokenizerClass(
        "vocab.txt", _wordpiece, {**ROBERTA_PIECES, "unk_token": "[UNK]"}, BERT.arguments, True
    ),
    "RobertaTokenizer": TokenizerClass(
        VOCAB, _byte_level, ROBERTA_PIECES, {"add_prefix_space": False, "trim_offsets": True}, True
    ),
    "AlbertTokenizer": TokenizerClass(
        *("spiece.model", partial(_unigram, quotes=True), SPIECE_PIECES),
        {"do_lower_case": True, "keep_accents": False, **PREFIX},
    ),
    "RemBertTokenizer": TokenizerClass(
        "sentencepiece.model",
        partial(_unigram, quotes=True, blanks=BLANKS, cuts_at_blanks=False),
        SPIECE_PIECES,
        {"do_lower_case": False, "keep_accents": True, **PREFIX},
    ),
    "XLMRobertaTokenizer": TokenizerClass(
        *("sentencepiece.bpe.model", _unigram, ROBERTA_PIECES, PREFIX, True, HEAD, MASK, 3)
    ),
    "CamembertTokenizer": TokenizerClass(
        *("sentencepiece.bpe.model", _unigram, ROBERTA_PIECES, PREFIX),
        *(True, CAMEMBERT_HEAD, MASK, 1),
    ),
    "DebertaV2Tokenizer": TokenizerClass(
        "spm.model",
        partial(_unigram, blanks=DEBERTA_BLANKS, cuts_at_blanks=False, prefix="first"),
        {**BERT_PIECES, "mask_token": "[MASK]"},
        {"do_lower_case": False, "split_by_punct": False, **PREFIX},
    ),
    SENTENCEPIECE: TokenizerClass("spiece.model", SentencePiece, SPIECE_PIECES),
}
OF_FAMILIES = {
    **dict.fromkeys(("bert", "distilbert", "electra"), "BertTokenizer"),
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "albert": "AlbertTokenizer",
    "rembert": "RemBertTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "modernbert": WHOLE,
}
"""The class of each ``model_type`` where a folder names none."""


def make_tokenizer(path: Path, name: str, config: Values, description: Values) -> Tokenizer:
    """Returns the tokenizer of a class.

    Args:
        path: the ``tokenizer.json``, or the file of the vocabulary.
        config: ``tokenizer_config.json``, with the values of older files.
        description: the ``tokenizer.json``, if there is one.
    """
    kind, files = CLASSES.get(name), {path.name: path}
    pieces = dict(kind.pieces) if kind else {}
    pieces |= {key: spelling(config[key]) for key in {*SPELLINGS, *pieces} if config.get(key)}
    added = added_tokens(config, {} if kind else description)
    options: Values = {"tokenizer_class": name}
    if kind is None:
        backend = _whole(path, description)
    else:
        for key, default in kind.arguments.items():
            options[key] = flag(config, key, default)
        vocab, characters, found = _vocabulary(kind, path, description)
        backend = kind.make(vocab, {**options, **pieces}, characters)
        if path.name == VOCAB:
            files[MERGES] = path.with_name(MERGES)
        if path.suffix == ".model":  # special pieces that it lacks have the next ids
            missing = [piece for piece in pieces.values() if backend.token_to_id(piece) is None]
            added += [*(AddedToken(piece, special=True) for piece in missing), *found]
    names = {key: piece for key, piece in pieces.items() if key in SPELLINGS}
    tokenizer = Tokenizer(files, backend, added, names, {**options, **pieces})
    like_roberta = kind.like_roberta if kind else tokenizer.cls_id == tokenizer.piece_id("<s>")
    layout = None if kind else _layout(description.get("post_processor"))
    tokenizer.separators, tokenizer.segments = layout or ((2, False) if like_roberta else (1, True))
    return tokenizer


def flag(config: Values, name: str, default: bool | None = None) -> bool | None:
    """Returns an option of a tokenizer; ``ValueError`` if it is not true, false or null."""
    value: bool | None = config.get(name, default)
    is_flag = value is None or isinstance(value, bool)
    check_argument(is_flag, f"{name} of the tokenizer", value, "true, false or null")
    return value


def spelling(token: Any) -> str:
    """Returns the text of a token that a file has as a string or as an object."""
    content = token.get("content") if isinstance(token, dict) else token
    check_argument(isinstance(content, str), "a special token", token, "a text")
    return str(content)


def added_tokens(config: Values, description: Values) -> list[AddedToken]:
    """Returns the tokens that were added to a vocabulary, in the order of their ids."""
    whole = [(token["id"], token) for token in description.get("added_tokens") or ()]
    named = [(int(i), token) for i, token in (config.get(ADDED) or {}).items()]
    tokens: dict[str, Values] = {}
    for own in (whole, named):
        tokens |= {token["content"]: token for _, token in sorted(own, key=lambda item: item[0])}
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or ()
    for piece in map(spelling, extra):
        tokens.setdefault(piece, {"content": piece, "special": True})
    return [
        AddedToken(**{key: value for key, value in token.items() if key in FLAGS})
        for token in tokens.values()
    ]


def _vocabulary(
    kind: TokenizerClass, path: Path, description: Values
) -> tuple[Any, bytes, Sequence[AddedToken]]:
    """Returns the vocabulary, the character map and the added tokens of a file."""
    if path.suffix == ".txt":
        return read_vocab(path), b"", ()
    if path.name == VOCAB:
        if not path.with_name(MERGES).is_file():
            raise FileNotFoundError(f"{path} has no {MERGES} beside it: copy it there")
        return BPE.read_file(str(path), str(path.with_name(MERGES))), b"", ()
    if path.suffix == ".model":
        return _read_sentencepiece(kind, path)
    model, normalizer = description["model"], description.get("normalizer") or {}
    expected = MODELS[Path(kind.vocabulary).suffix]
    if model.get("type", expected) != expected:
        raise ValueError(
            f"{path} has a model of the type {model['type']!r:.40}: expected {expected}, that of "
            "its tokenizer_class; choose another model"
        )
    if expected == "WordPiece":
        return model["vocab"], b"", ()
    if expected == "BPE":
        merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
        return (model["vocab"], merges), b"", ()
    steps = normalizer.get("normalizers", [normalizer])
    maps = [step for step in steps if step.get("type") == "Precompiled"]
    _check_steps(path, *maps[:1])
    characters = base64.b64decode(maps[0][MAP]) if maps else b""
    return _checked(path, list(map(tuple, model["vocab"]))), characters, ()


def _read_sentencepiece(kind: TokenizerClass, path: Path) -> tuple[Any, bytes, list[AddedToken]]:
    """Returns what ``_vocabulary`` does of a ``.model`` file; its own class takes the processor.

    The processor tells neither the type of the model, nor the map of characters, nor which pieces
    its user defined, and the classes of the package for messages do not load beside TensorFlow's
    protobuf. So these fields are read here, by their numbers in
    https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
    """
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_proto=path.read_bytes(), num_threads=1)
    messages = list(message_fields(processor.serialized_model_proto()))
    trainer, normalizer = (dict(message_fields(dict(messages).get(i, b""))) for i in (2, 3))
    is_own, characters = kind is CLASSES[SENTENCEPIECE], normalizer.get(2, b"")
    if trainer.get(3, UNIGRAM) != UNIGRAM and not is_own:
        raise ValueError(
            f"{path} is a SentencePiece model of another type than unigram, for which versions of "
            "transformers differ: save the tokenizer with transformers as tokenizer.json"
        )
    if characters:
        _check_steps(path, {"type": "Precompiled", MAP: base64.b64encode(characters).decode()})
    pieces = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(len(processor))]
    vocab = _checked(path, [*kind.head, *pieces[kind.skipped :], *kind.tail])
    kinds = [dict(message_fields(message)).get(3) for number, message in messages if number == 1]
    added = [
        AddedToken(piece, normalized=False, special=number == CONTROL)
        for (piece, _), number in zip(pieces, kinds, strict=True)
        if number in (CONTROL, USER_DEFINED)
    ]
    return processor if is_own else vocab, characters, added


def _whole(path: Path, description: Values) -> Backend:
    """Returns the tokenizer of a ``tokenizer.json`` without its added tokens."""
    values = {**description, "added_tokens": [], **dict.fromkeys(UNUSED)}
    model = values["model"] = {**values["model"]}
    if model.get(WORD_CHARS, 0) > LARGEST_WORD:
        model[WORD_CHARS] = LARGEST_WORD
    if isinstance(model["vocab"], list):
        _checked(path, model["vocab"])
    text = json.dumps(values)
    unknown = set(map(json.loads, PATTERN.findall(text))) - KNOWN_PATTERNS
    if unknown:
        raise ValueError(
            f"{path} has the regular expression {min(unknown)!r:.80}, which may take for ever: "
            "expected one of a known family or none; choose another model"
        )
    _check_steps(path, values.get("normalizer"), values.get("pre_tokenizer"))
    return Backend.from_str(text)


def _layout(template: Any) -> tuple[int, bool] | None:
    """Returns the separators between question and page, and whether their segments differ."""
    if template and template["type"] == "TemplateProcessing":
        kinds = [next(iter(item.items())) for item in template["pair"]]
        first, second = (i for i, (kind, _) in enumerate(kinds) if kind == "Sequence")
        if second - first > 1:  # a template for single texts has no separator here
            return second - first - 1, kinds[second][1]["type_id"] == 1
    return None


def _checked(path: Path, vocab: list[Pair]) -> list[Pair]:
    """Returns a unigram vocabulary; ``ValueError`` for a piece longer than ``MAX_PIECE``."""
    longest = max((len(piece) for piece, _ in vocab), default=0)
    if longest > MAX_PIECE:
        raise ValueError(
            f"{path} has a piece of {longest} characters: expected at most {MAX_PIECE}; choose "
            "another model"
        )
    return vocab


def _check_steps(path: Path, *steps: Any) -> None:
    """Checks that steps do not make a text much longer before it is cut."""
    longer = math.prod(map(_expansion, steps))
    if longer > MAX_EXPANSION:
        raise ValueError(
            f"{path} may make a text {longer:.3g} times longer before it cuts it: expected at "
            f"most {MAX_EXPANSION} times; choose another model"
        )


def _expansion(step: Any) -> float:
    """Returns the largest factor by which a step of a ``tokenizer.json`` lengthens a text.

    Forms of Unicode, which do so once, are not counted. A map of SentencePiece has the size of its
    trie, the trie, and the texts that replace characters, each with a zero behind it.
    """
    match step:
        case {"normalizers": parts} | {"pretokenizers": parts}:
            return math.prod(map(_expansion, parts))
        case {"type": "Replace", "content": content, "pattern": pattern}:
            replaced = pattern.get("String", "  ")  # or one of KNOWN_PATTERNS
            return max(1.0, len(normalize("NFKD", content)) / max(1, len(replaced)))
        case {"type": "Prepend", "prepend": text}:
            return 1.0 + len(normalize("NFKD", text))
        case {"type": "Precompiled", "precompiled_charsmap": str(characters)}:
            with contextlib.suppress(ValueError):  # the library says what is damaged
                data = base64.b64decode(characters)
                texts = data[4 + int.from_bytes(data[:4], "little") :].decode().split("\0")
                return max(1.0, *(len(normalize("NFKD", text)) for text in texts))
        case {"type": str(kind)}:
            return EXPANSIONS.get(kind, 1.0)
    return 1.0
