"""Examples about three things, each in words of its own."""

from airrep.corpus.corpus import Corpus, Example

WORDS = {
    "cooking": ["zucchini", "soup", "oven", "butter", "garlic", "recipe", "pepper", "onion", "bake", "simmer"],
    "stars": ["planet", "orbit", "telescope", "galaxy", "comet", "moon", "gravity", "rocket", "solar", "nebula"],
    "money": ["bank", "interest", "loan", "savings", "mortgage", "tax", "invoice", "dividend", "budget", "credit"],
}


def topics(each: int = 40) -> Corpus:
    """So many examples of each; their source is the topic."""
    return Corpus.from_examples(
        Example(
            prompt=f"Tell me of {words[number % 10]} and {words[(3 * number + 1) % 10]}.",
            response=f"{words[(7 * number + 2) % 10]} with {words[(number // 10 + 5) % 10]}, {words[number % 7]}",
            id=f"{topic}{number}",
            source=topic,
        )
        for topic, words in WORDS.items()
        for number in range(each)
    )
