"""Attribution methods, all with one interface.

base         The interface of attribution methods: encode training examples, score them for queries.
by_token     Scores split over pairs of tokens, and added up over pairs of words.
conformance  A public check that an attributor keeps the promises of its interface.
datamodels   Attribution by datamodels that were fitted already.
direct       Methods that score training examples directly and store no features of them.
encoder      Attribution by sentence encoders: AirRep and plain embeddings.
gradient/    Methods that read gradients of the LM: hooks, projections, curvature.
installed    Methods of other packages, found by their entry points.
language     Attribution by one forward pass of a language model: RDS.
methods      The methods of training data attribution, by name.
precomputed  Attribution by precomputed features, read from files.
recipes      Recipes: YAML files that list the channels of an index, read and checked.
settings     Settings of the attribution methods.
sums/        A method that adds up the scores of several others: channels.
text/        Methods that count words: TF-IDF, BM25, DSIR, an n-gram LM.
"""
