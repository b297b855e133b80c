"""Methods that count words: TF-IDF, DSIR, an n-gram LM.

columns   Columns of n-grams of tokens: counted for texts and a corpus, placed for one.
lexical   Attribution by words and hashed n-grams: TF-IDF, BM25 and DSIR.
ngram_lm  Attribution by a counting language model over n-grams, weighed by surprise.
tokens    Texts as token numbers.
"""
