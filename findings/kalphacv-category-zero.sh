#!/usr/bin/env bash
# kalphacv counts a missing box as category 0: with one category 0, raters without a common box agree.
#
# Version: kalphacv 1.5.2 (krippendorff 0.8.1, NumPy 2.3.1, Python 3.11).
# Guess before the run: the agreement does not depend on which numbers the categories have. (Suspected
#     after reading the source.)
# Seen: a box that a rater lacks enters the matrix for Krippendorff's alpha as 0, and a box of category 0
#     as well. With one category, two raters with three boxes each and none in common have an alpha of
#     1 if it is 0, and -0.83 if it is 1 or a name; if one rater draws nothing at all, it is 1 and -0.67.
#     With two categories, where half of the boxes of the first are missed, alpha is 1 if that is 0, and
#     0.59 otherwise. Many exporters to COCO's format count from 0, and the README takes any number.
# For gyre: nothing. There, begin with category 1, or give names.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3.11 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --only-binary :all: kalphacv==1.5.2 krippendorff==0.8.1 numpy==2.3.1 \
    pillow==11.3.0
cd "$folder"
"$folder/env/bin/python" - <<'PYTHON'
import json

import kalphacv


def compute(first, second):
    """Return the alpha of two raters' boxes, each a pair of a place and a category."""
    images = [{"id": 1, "file_name": "a.png", "height": 100, "width": 2000, "raters": ["A", "B"]}]
    annotations = [{"id": 0, "image_id": 1, "category_id": category, "bbox": [100 * place, 10, 50, 50], "rater": rater}
                   for rater, boxes in (("A", first), ("B", second)) for place, category in boxes]
    with open("boxes.json", "w") as file:
        json.dump({"images": images, "annotations": annotations}, file)
    return kalphacv.calculate_iaa_from_annotations("bbox", "boxes.json", "raters", "rater", silent=True)[0.5]


apart, alone = [], []
for category in (0, 1, 7, "car"):
    apart.append(compute([(i, category) for i in range(3)], [(i, category) for i in range(3, 6)]))
    alone.append(compute([(i, category) for i in range(3)], []))
    print(f"category {category}: no box in common: {apart[-1]}, no box of the second: {alone[-1]}")
assert apart[0] == alone[0] == 1
assert max(apart[1:]) == min(apart[1:]) < 0 and max(alone[1:]) <= 0

missed = []
for categories in ((0, 1), (1, 2), ("car", "dog")):
    first = [(i, categories[i % 2]) for i in range(20)]
    missed.append(compute(first, [box for box in first if box[1] == categories[1] or box[0] % 4 == 0]))
    print(f"categories {categories}: half of the boxes of the first missed: {missed[-1]}")
assert missed[0] == 1 and max(missed[1:]) == min(missed[1:]) < 0.8
PYTHON
