"""Attribution methods, all by one contract.

base         The contract of attribution methods: encode examples, ask queries.
by_token     Scores token by token: pairs of tokens of two texts, gathered by words.
conformance  A public check that an attributor keeps its contract.
datamodels   Attribution by datamodels that were fitted already.
direct       Methods that score training examples as they pass, and keep no features of them.
encoder      Attribution by sentence encoders: AirRep and plain embeddings.
gradient/    Methods that read gradients of the LM: hooks, projections, curvature.
installed    Methods of other packages, found by their entry points.
language     Attribution by one forward pass of a language model: RDS.
methods      The methods of training data attribution, by name.
precomputed  Attribution by precomputed features, which lie in files.
recipes      Recipes: YAML files that list the channels of an index, read and checked.
settings     Settings of the attribution methods.
sums/        A method that adds up others: channels.
text/        Methods that count words: TF-IDF, DSIR, an n-gram LM.
"""
