"""Scripts that set no space between words: phrases of a few letters are learned as words are elsewhere."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mein.data.corpus import Corpus, source_of_lists
from mein.evaluation.systems import EXPERT, IMITATORS_ONLY, MIXTURE
from tests.support import tiny

pytestmark = pytest.mark.usefixtures("unsynced")


@dataclass(frozen=True)
class Script:
    """Words that all texts are made of, and phrases of two classes, of two to four letters."""

    words: str
    phrases: tuple[str, str]
    between: str = ""


CHINESE = (
    "我们 昨天 晚上 去了 电影院 这部 影片 讲述 一个 家庭 故事 导演 演员 音乐 "
    "画面 剧情 朋友 觉得 时间 城市 他们 最后 其实 还是 有点"
)
SCRIPTS = {
    "Chinese": Script(CHINESE, ("很好看 值得 太棒了 感人", "不好看 浪费 太差了 无聊")),
    "Japanese": Script(
        "昨日 友達と 映画を 見ました この 作品は 家族の 物語で 監督 俳優 音楽 東京の "
        "ホテル 駅から 部屋は 料理を 食べた そして でも 本当に",
        ("最高 すばらしい 良かった 感動", "最低 つまらない 悪かった 退屈"),
    ),
    "Thai": Script(
        "เมื่อวาน เรา ไป ดู หนัง เรื่องนี้ กับ เพื่อน ที่ โรงแรม ห้อง อาหาร "
        "ราคา เมือง ครอบครัว นักแสดง เพลง แล้วก็ ตอนจบ คนเยอะ",
        ("ดีมาก สนุก ชอบ สวย", "แย่ น่าเบื่อ เกลียด ห่วย"),
    ),
    "mixed": Script(
        f"{CHINESE} camera battery screen price shipping Amazon",
        ("很好看 值得 great 感人", "不好看 浪费 poor 无聊"),
        between=" ",
    ),
}


def documents(script: Script, count: int, seed: int) -> tuple[list[str], list[str]]:
    draws, words = random.Random(seed), script.words.split()
    texts, labels = [], []
    for _ in range(count):
        label = draws.randrange(2)
        found = draws.choices(words, k=draws.randint(8, 15))
        for _ in range(draws.randint(1, 2)):
            found.insert(draws.randrange(len(found)), draws.choice(script.phrases[label].split()))
        spaces = draws.choices(["", script.between], k=len(found))
        texts.append("".join(word + space for word, space in zip(found, spaces, strict=True)))
        labels.append("ab"[label])
    return texts, labels


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_phrase_of_a_few_letters_is_learned_where_no_space_ends_it(tmp_path: Path, name: str) -> None:
    """Half of the documents are of each class. Where a clause was one word, the expert erred on 24 to 56%."""
    labeled, unlabeled, test = (documents(SCRIPTS[name], n, seed) for seed, n in enumerate((60, 300, 200)))
    corpus = Corpus(
        labeled=source_of_lists(*labeled),
        unlabeled=source_of_lists(unlabeled[0]),
        test=source_of_lists(*test),
    )
    settings: dict[str, Any] = {"expert__kind": "linear", "mixture__method": "ours"}
    settings |= {"imitator_training__epochs": 10, "imitator_training__learning_rate": 0.02}
    rows = tiny.run(tmp_path / "run", corpus, **settings)
    errors = {row.name: row.scores.values["error"] for row in rows}
    assert errors[EXPERT] < 15.0
    assert errors[IMITATORS_ONLY] < 25.0
    assert errors[MIXTURE] < 15.0
