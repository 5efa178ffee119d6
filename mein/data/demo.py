"""The demo corpus, which is synthetic: review-like English, generated from a seed in a second or two.

A document states opinions about aspects. An opinion is an n-gram of one to five words, such as
"never failed to shine" or "far from cosy"; its words also occur in opinions of the other sign.
The opinions follow a Zipf law: a few are common, most are rare in 300 documents and yet met
dozens of times in 20,000. Most opinions of a document agree with its label, so what a rare one
means shows in the opinions beside it. No other file knows how the corpus is made.
"""

import random
from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from mein.runtime.seeds import derive_seed

# An opinion is a modifier around a unit: its sign is the unit's, reversed by a flip.
# Modifiers share their words, so that order decides: "failed to shine", "never failed to shine".
UNITS = {
    "adjective": {
        +1: """tasty fresh friendly cosy quick spotless generous crisp elegant sturdy reliable quiet
            charming attentive polished comfortable inviting delicious thoughtful bright smooth
            responsive spacious affordable helpful precise gentle lively balanced refined tidy solid
            graceful snappy welcoming memorable flawless honest inspired rewarding""",
        -1: """bland stale rude cramped slow filthy stingy soggy clumsy flimsy erratic noisy dreary
            careless shabby awkward gloomy greasy thoughtless dim rough laggy cluttered overpriced
            useless vague harsh dull lopsided crude messy wobbly tacky sluggish hostile forgettable
            faulty misleading tired pointless""",
    },
    "noun": {
        +1: """care charm warmth value comfort style character attention elegance imagination
            precision finesse harmony generosity courtesy patience flair substance clarity depth""",
        -1: """noise dust trouble hassle nonsense clutter neglect arrogance chaos damage friction
            confusion waste rudeness delay decay boredom grime tension disorder""",
    },
    "verb": {
        +1: """impress|deliver|shine|satisfy|delight|excel|please|last|improve|hold up|stand out
            |come through|pay off|win us over|cheer us up|keep up|hold together|live up|measure up
            |step up""",
        -1: """fail|disappoint|crumble|annoy|leak|rattle|offend|struggle|decline|break down|wear out
            |fall through|put us off|let us down|hold us up|give up|come apart|dry up|mess up
            |slip up""",
    },
    "plan": {
        +1: """come back|book again|order more|tell friends|stay longer|buy another|leave a tip
            |keep it|return|bring family|celebrate|sign up""",
        -1: """complain|walk out|cancel|send it back|warn others|leave early|want a refund
            |bring it back|argue|look elsewhere|give it away|sign off""",
    },
}
STRAIGHT = {
    "adjective": """{}|really {}|nothing but {}|nothing less than {}|never less than {}
        |nothing if not {}|far more than {}|all round {}|not just {}""",
    "noun": """all {}|full of {}|nothing but {}|no shortage of {}|never short of {}|no end of {}
        |not without {}|no lack of {}""",
    "verb": """managed to {}|never failed to {}|did not fail to {}|never stopped trying to {}
        |did {} all round|was quick to {}|was sure to {}|could only {}""",
    "plan": """would gladly {}|had to {}|could not wait to {}|would not hesitate to {}
        |never regretted having to {}|are sure to {}|would rather {}|wanted to {}""",
}
FLIP = {
    "adjective": """hardly {}|never {}|anything but {}|less than {}|far from {}|not at all {}
        |nowhere near {}|by no means {}|no longer {}|not {}""",
    "noun": """no {}|short of {}|anything but {}|free of {}|never any {}|not much {}|without {}
        |far from all {}""",
    "verb": """failed to {}|never managed to {}|did not {}|never {}|was slow to {}
        |was not sure to {}|could not {}|did anything but {}""",
    "plan": """would never {}|had no reason to {}|could not {}|would hesitate to {}
        |did not want to {}|are not sure to {}|would rather not {}|never had to {}""",
}
# Clauses that state an opinion about an aspect.
CLAUSES = {
    "adjective": """the {aspect} was {opinion}|we found the {aspect} {opinion}
        |the {aspect} seemed {opinion} to me|once more the {aspect} proved {opinion}
        |{opinion} is the word for the {aspect}""",
    "noun": """the {aspect} was {opinion}|there was {opinion} in the {aspect}
        |the {aspect} struck me as {opinion}|i noticed {opinion} around the {aspect}""",
    "verb": """the {aspect} {opinion}|in the end the {aspect} {opinion}
        |over the week the {aspect} {opinion}|this time the {aspect} {opinion}""",
    "plan": """because of the {aspect} we {opinion}|after seeing the {aspect} we {opinion}
        |we {opinion} with that {aspect}|given the {aspect} most of us {opinion}""",
}
CONTRASTS = """although {minor}, {major}.|{minor}, but {major}.|even if {minor}, {major}.
    |{major}, though {minor}.|{major}, despite the fact that {minor}.|while {minor}, {major}."""
ASPECTS = {
    "restaurant": """food service price menu dessert waiter kitchen soup wine bill table music bread
        atmosphere chef""",
    "hotel": """room bed breakfast lobby location pool bathroom staff view lift carpet reception
        parking balcony shower""",
    "gadget": """screen battery keyboard camera speaker charger software design sound case manual
        hinge lens button signal""",
}
FILLER = {
    "restaurant": """we went there on a {day} with {people}|the place is near the {spot}
        |i ordered the {dish} and a glass of water|{people} chose the {dish} from the menu
        |our table was booked for {hour}|there were {number} of us that evening""",
    "hotel": """we stayed for {number} nights in {month}|the building is close to the {spot}
        |we arrived around {hour} by train|{people} had the room next door
        |our room was on floor {number}|i was there on business in {month}""",
    "gadget": """i bought it in {month} for {people}|it arrived on a {day} in a plain box
        |{people} already had the older model|i use it about {number} hours a day
        |it sits on the desk near the {spot}|the parcel came around {hour}""",
}
# Spelled as when the figures of the corpus were measured: another spelling is another corpus.
SLOTS = {
    "day": "monday tuesday wednesday thursday friday saturday sunday",
    "month": "january february march april may june july august september october november",
    "people": "my sister|an old friend|two colleagues|my parents|the kids|my neighbour|a cousin",
    "spot": "station market harbour window museum river cathedral library airport garden",
    "dish": "soup pasta salad curry risotto stew fish omelette pizza noodles",
    "hour": "noon seven eight nine midnight six ten",
    "number": "two three four five six seven",
}


# Settings of difficulty.
PHRASES_PER_UNIT = 2  # straight, and the same number flipped: with more, each n-gram is rarer
ZIPF_EXPONENT = 1.1  # higher: the common opinions take a larger share
OPINIONS = (2, 6)  # in a document, fewest and most
AGREEMENT = 0.92  # share of opinions that follow the document's polarity, ahead of the majority rule
FILLERS = (0, 2)  # neutral sentences in a document, fewest and most
FEWEST_WORDS = 25  # a shorter document is filled up with more neutral sentences
LABEL_NOISE = 0.03  # share of labels that are reversed, also in the test part
T = TypeVar("T")
NEGATIVE, POSITIVE = "negative", "positive"


@dataclass(frozen=True)
class DemoCorpus:
    """Texts and labels of the three parts."""

    labeled_texts: list[str]
    labeled_labels: list[str]
    unlabeled_texts: list[str]
    test_texts: list[str]
    test_labels: list[str]


@dataclass(frozen=True)
class Opinion:
    """An n-gram and the kind of clause that it fits into."""

    words: str
    kind: str
    sign: int


def demo_corpus(seed: int = 0, labeled: int = 300, unlabeled: int = 20_000, test: int = 2_000) -> DemoCorpus:
    """Generate the corpus of a seed; the labels are "negative" and "positive", half each."""
    writer = _Writer(opinions(seed))
    labeled_texts, labeled_labels = writer.part(labeled, derive_seed(seed, "demo", "labeled"))
    unlabeled_texts, _ = writer.part(unlabeled, derive_seed(seed, "demo", "unlabeled"))
    test_texts, test_labels = writer.part(test, derive_seed(seed, "demo", "test"))
    return DemoCorpus(labeled_texts, labeled_labels, unlabeled_texts, test_texts, test_labels)


def opinions(seed: int) -> dict[int, list[Opinion]]:
    """The n-grams of each sign, the most common first; both signs have the same number."""
    chance = random.Random(derive_seed(seed, "demo", "opinions"))
    ranked: dict[int, list[Opinion]] = {+1: [], -1: []}
    for kind, units in UNITS.items():
        for sign, listed in units.items():
            for unit in _split(listed):
                for turn, modifiers in ((+1, STRAIGHT), (-1, FLIP)):
                    for modifier in _sample(chance, _split(modifiers[kind]), PHRASES_PER_UNIT):
                        words = modifier.format(unit)
                        ranked[sign * turn].append(Opinion(words, kind, sign * turn))
    return {sign: _sample(chance, found, len(found)) for sign, found in ranked.items()}


class _Writer:
    """Writes documents from ranked opinions."""

    def __init__(self, ranked: dict[int, list[Opinion]]) -> None:
        self.ranked = ranked
        size = len(ranked[+1])
        self.cumulative = list(accumulate((1 + rank) ** -ZIPF_EXPONENT for rank in range(size)))
        self.clauses = {kind: _split(text) for kind, text in CLAUSES.items()}
        self.contrasts = _split(CONTRASTS)
        self.aspects = {domain: _split(text) for domain, text in ASPECTS.items()}
        self.fillers = {domain: _split(text) for domain, text in FILLER.items()}
        self.slots = {slot: _split(text) for slot, text in SLOTS.items()}

    def part(self, size: int, seed: int) -> tuple[list[str], list[str]]:
        """Texts and noisy labels of `size` documents, half of them positive, in random order."""
        chance = random.Random(seed)
        signs = _sample(chance, [+1 if place % 2 else -1 for place in range(size)], size)
        texts = [self.document(chance, sign) for sign in signs]
        noisy = [-sign if chance.random() < LABEL_NOISE else sign for sign in signs]
        return texts, [POSITIVE if sign > 0 else NEGATIVE for sign in noisy]

    def document(self, chance: random.Random, sign: int) -> str:
        """A document most of whose opinions have this sign."""
        domain = _pick(chance, list(self.aspects))
        count = _between(chance, OPINIONS)
        minor = sum(chance.random() > AGREEMENT for _ in range(count))
        minor = min(minor, (count - 1) // 2)
        minors = [self.clause(chance, domain, -sign) for _ in range(minor)]
        majors = [self.clause(chance, domain, sign) for _ in range(count - minor)]
        sentences = [self.filler(chance, domain) for _ in range(_between(chance, FILLERS))]
        for clause in minors:
            contrast = _pick(chance, self.contrasts)
            sentences.append(contrast.format(minor=clause, major=majors.pop()))
        sentences += [f"{clause}." for clause in majors]
        while sum(sentence.count(" ") + 1 for sentence in sentences) < FEWEST_WORDS:
            sentences.append(self.filler(chance, domain))
        shuffled = _sample(chance, sentences, len(sentences))
        return " ".join(sentence[0].upper() + sentence[1:] for sentence in shuffled)

    def clause(self, chance: random.Random, domain: str, sign: int) -> str:
        """An opinion of this sign, drawn by the Zipf law, about an aspect of the domain."""
        rank = bisect(self.cumulative, chance.random() * self.cumulative[-1])
        opinion = self.ranked[sign][rank]
        aspect = _pick(chance, self.aspects[domain])
        template = _pick(chance, self.clauses[opinion.kind])
        return template.format(aspect=aspect, opinion=opinion.words)

    def filler(self, chance: random.Random, domain: str) -> str:
        """A sentence without an opinion."""
        slots = {slot: _pick(chance, words) for slot, words in self.slots.items()}
        return _pick(chance, self.fillers[domain]).format(**slots) + "."


def _split(text: str) -> list[str]:
    """Entries between bars, or between spaces where there are no bars."""
    return [entry.strip() for entry in text.split("|")] if "|" in text else text.split()


# Only random.random() draws: its stream is the same in every version of Python.


def _pick(chance: random.Random, items: list[T]) -> T:
    return items[int(chance.random() * len(items))]


def _between(chance: random.Random, bounds: tuple[int, int]) -> int:
    return bounds[0] + int(chance.random() * (bounds[1] - bounds[0] + 1))


def _sample(chance: random.Random, items: list[T], size: int) -> list[T]:
    """`size` of the items, in random order."""
    keys = [chance.random() for _ in items]
    return [items[place] for place in sorted(range(len(items)), key=keys.__getitem__)[:size]]
