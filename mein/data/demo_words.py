"""The words of the embedded corpus: opinions built from shared words, aspects and filler."""

# An opinion is a modifier around a unit: its sign is the unit's, turned round by a flip.
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
# How a clause says an opinion about an aspect.
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
SLOTS = {
    "day": "monday tuesday wednesday thursday friday saturday sunday",
    "month": "january february march april may june july august september october november",
    "people": "my sister|an old friend|two colleagues|my parents|the kids|my neighbour|a cousin",
    "spot": "station market harbour window museum river cathedral library airport garden",
    "dish": "soup pasta salad curry risotto stew fish omelette pizza noodles",
    "hour": "noon seven eight nine midnight six ten",
    "number": "two three four five six seven",
}
