"""Methods that count words: TF-IDF, BM25, DSIR, an n-gram LM.

columns   Columns of token n-grams: counts of texts and a corpus, places in a text.
lexical   Attribution by words and hashed n-grams: TF-IDF, BM25 and DSIR.
ngram_lm  Attribution by an n-gram language model, with an LM that may weight the tokens.
tokens    Tokenizers: texts as token numbers, and where each token stands.
"""
