"""Methods that count words: TF-IDF, DSIR, an n-gram LM.

bm25      Attribution by BM25, the ranking of text search.
columns   Columns of n-grams of tokens: of many texts at a time, counted; and of one text with their places.
expected  Surprise of a language model at a response's tokens: 1 − p.
learnt    Tokens that a trainer learns: an answer as the chat template writes it.
lexical   Attribution by words and hashed n-grams: TF-IDF and DSIR.
ngram_lm  Attribution by a counting language model over the n-grams of responses.
ngrams    Hashed counts of word n-grams, and their log ratios.
tally     N-grams of a whole corpus, counted in bounded memory; its tokens, held while there is room.
terms     Terms: words of two letters or more and runs of such; numbered, counted, and their places in a text.
tokens    Texts as token numbers.
"""
