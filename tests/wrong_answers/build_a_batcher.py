from test_exercises_build_a_batcher import WRONG as MISTAKES

WRONG = {
    name: [(lambda asked, answer=answer: answer, word) for answer, _, word in lines]
    for name, lines in MISTAKES.items()
}
