"""Methods that count words: TF-IDF, DSIR, an n-gram LM.

columns   Columns of n-grams of tokens: counted for texts and a corpus, placed for one.
expected  Surprise of a language model at a response's tokens: 1 − p.
lexical   Attribution by words and hashed n-grams: TF-IDF, BM25 and DSIR.
ngram_lm  Attribution by a counting language model over the n-grams of responses.
ngrams    Words in a row, counted as terms of a vocabulary or in hash buckets.
tokens    Texts as token numbers.
"""
