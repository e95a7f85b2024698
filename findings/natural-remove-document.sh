#!/usr/bin/env bash
# Removing a document from natural's classifiers makes them forget its words in all other documents.
#
# Version: natural 8.1.1 (Node.js 20).
# Guess before the run: a classifier from which a document is removed before the training is the one
#     that never had it. (That it is not was suspected after reading the source; the author of
#     `removeDocument` asked himself in his pull request what removing words would do to other
#     documents.)
# Seen: each word of the document is deleted from the list of words, however many other documents
#     have it. Without a document of four frequent words,
#     all classes have the same value for each of these words, where 16 to 1 is due, with
#     naive Bayes and with logistic regression. Removing one of two equal documents does it too, and
#     nothing is said. The words come back only with a new document that has them.
# For gyre: nothing. There, make a new classifier, and add the documents that remain.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit natural@8.1.1
cat > compare.js <<'JAVASCRIPT'
const assert = require("node:assert");
const { BayesClassifier, LogisticRegressionClassifier } = require("natural");

const DOCUMENTS = [
  ["cheap pills offer", "spam"], ["cheap watches offer", "spam"], ["cheap loans offer", "spam"],
  ["lunch meeting tomorrow", "ham"], ["project meeting notes", "ham"], ["budget meeting today", "ham"],
];

function train(Classifier, documents, removed) {
  const classifier = new Classifier();
  for (const document of documents) classifier.addDocument(...document);
  if (removed) classifier.removeDocument(...removed);
  classifier.train();
  return classifier;
}

function weigh(classifier, text) {
  const values = Object.fromEntries(classifier.getClassifications(text).map(({ label, value }) => [label, value]));
  return values.spam / values.ham;
}

for (const Classifier of [BayesClassifier, LogisticRegressionClassifier]) {
  const extra = ["cheap lunch offer meeting", "ham"];
  const due = train(Classifier, DOCUMENTS);
  const seen = train(Classifier, [...DOCUMENTS, extra], extra);
  for (const text of ["cheap offer", "meeting"]) {
    console.log(`${Classifier.name}, "${text}": spam against ham ${weigh(seen, text).toFixed(3)}, ` +
                `due ${weigh(due, text).toFixed(3)}`);
    assert(weigh(seen, text) === 1 && Math.abs(Math.log(weigh(due, text))) > 1);
  }
  const twice = train(Classifier, [...DOCUMENTS, DOCUMENTS[0]], DOCUMENTS[0]);
  console.log(`${Classifier.name}, one of two equal documents removed: "cheap offer" ` +
              `${weigh(twice, "cheap offer").toFixed(3)}`);
  assert(weigh(twice, "cheap offer") === 1);
}
JAVASCRIPT
node compare.js | grep -v "injected env"
