"""Methods that count words: TF-IDF, DSIR, an n-gram LM.

bm25      Attribution by BM25, the ranking of text search.
columns   Columns of n-grams of tokens: counted for texts and a corpus, placed for one.
expected  Surprise of a language model at a response's tokens: 1 − p.
lexical   Attribution by words and hashed n-grams: TF-IDF and DSIR.
ngram_lm  Attribution by a counting language model over the n-grams of responses.
ngrams    Hashed counts of word n-grams, and their log ratios.
tokens    Texts as token numbers.
"""
