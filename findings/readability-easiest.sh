#!/usr/bin/env bash
# py-readability-metrics calls the easiest texts "very_confusing" and the work of a college graduate.
#
# Versions: py-readability-metrics 1.4.5, nltk 3.9.1.
# Guess before the run: `flesch()` calls a text with a reading ease above 90 "very_easy" and of grade 5, also
#     above 100, which simple texts of short sentences have. (That it does not was suspected after reading
#     the source.)
# Seen: above 100, as below 30, a text is "very_confusing" and for college graduates: sentences of seven words
#     of one syllable have an ease of 115. A long word in each of them makes the text "very_easy", at 91. The
#     Dale-Chall score has such a hole too: 4.8 is for grades 1 to 4 and 5.0 for 5 and 6, but 4.95 is for
#     college graduates.
# For gyre: it measures no readability. There, take the scores, not the grades.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile nltk==3.9.1
"$folder/env/bin/pip" install --quiet --no-compile --no-deps py-readability-metrics==1.4.5
# A model of sentence ends without abbreviations, which is all that these texts need.
model="$folder/nltk_data/tokenizers/punkt_tab/english"
mkdir -p "$model"
touch "$model/collocations.tab" "$model/sent_starters.txt" "$model/abbrev_types.txt" \
    "$model/ortho_context.tab"
NLTK_DATA="$folder/nltk_data" "$folder/env/bin/python" -W ignore - <<'PYTHON'
from readability import Readability
from readability.scorers import DaleChall

easy = "The cat sat on the mat. The dog ran to the big red bed. " * 12
harder = easy.replace("mat", "animal").replace("bed", "animal")
for name, text, words, sentences, syllables in [
    ("one syllable to a word", easy, 14, 2, 14),
    ("a word of three in each sentence", harder, 14, 2, 18),
]:
    ease = 206.835 - 1.015 * words / sentences - 84.6 * syllables / words
    result = Readability(text).flesch()
    print(f"{name}: reading ease {result.score:.1f}, due {ease:.1f}: {result.ease}, {result.grade_levels}")
    assert abs(result.score - ease) < 0.1
    if ease > 100:
        assert result.ease == "very_confusing" and result.grade_levels == ["college_graduate"]
    else:
        assert result.ease == "very_easy"


class Statistics:
    """Counts of a text of 1,000 words whose Dale-Chall score is asked for."""

    num_words = 1000
    num_dale_chall_complex = 0

    def __init__(self, words_per_sentence):
        self.num_sentences = self.num_words / words_per_sentence


grades = {}
for score in [4.8, 4.95, 5.0]:
    result = DaleChall(Statistics((score + 1e-9) / 0.0496)).score()
    grades[score] = result.grade_levels
    print(f"Dale-Chall {result.score:.2f}: {result.grade_levels}")
assert grades[4.95] == ["college_graduate"] and grades[4.8][-1] == "4" and grades[5.0][0] == "5"
PYTHON
