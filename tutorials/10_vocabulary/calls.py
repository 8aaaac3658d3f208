"""calls.py -- how the judge of lesson 10 reaches the functions of vocabulary.py, by the names that calls.c has, too.

worker.py loads this file.  A function takes the student's module and the call's arguments (worker.Call).  "real" or
"whole" marks a number that is a result.
"""


def maximum(vocabulary, call):
    T, own = call.number[0], call.number[2]
    vocabulary.vocabulary_max(call.group[0], call.floats(0, T, own), call.floats(3))


def loss(vocabulary, call):
    T, V, own = call.number[:3]
    return "real", vocabulary.vocabulary_loss(call.group[0], call.floats(0, T, own), call.wholes(1), V, call.given[0],
                                              call.floats(2, T, own))


CALLS = {"vocabulary_max": maximum, "vocabulary_loss": loss}
