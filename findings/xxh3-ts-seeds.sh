#!/usr/bin/env bash
# xxh3-ts' XXH3_128 ignores the seed for long inputs, and is another hash for short ones.
#
# Versions: xxh3-ts 2.0.1, hash-wasm 4.13.0 (npm).
# Guess before the run: XXH3_128 is "compatible with upstream v0.8.3", as its README says, with and without a seed.
# Seen: with a seed of 42, the hashes of 2 to 16 and of 241 to 1,300 bytes differ from hash-wasm's, which is made of the C
#     code; those of 0, 1 and 17 to 240 bytes are the same. Above 240 bytes, each seed gives the hash of seed 0: hash functions of
#     several seeds are one. Without a seed, hashes of two and three bytes differ if the second is 128 or more,
#     as in "é" and "日". XXH64 is right.
# Cause: no secret is derived from the seed (`XXH3_128` and `XXH3_hashLong_128b` of xxh3.ts); a byte is shifted by 24 as a
#     signed number (`XXH3_len_1to3_128b`). Its issue 4, of hashes without a seed, was closed with 2.0.
# For gyre: it hashes files by SHA-256. There, take hash-wasm.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export HOME="$folder"
npm install --silent --no-fund --no-audit xxh3-ts@2.0.1 hash-wasm@4.13.0
cat > hashes.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { xxhash128, xxhash64 } from "hash-wasm";
import { XXH3_128, XXH64 } from "xxh3-ts";

const LENGTHS = Array.from({ length: 1301 }, (_, length) => length);
const SEED = 42;

function makeBytes(length) {
  return Buffer.from(Array.from({ length }, (_, place) => (place * 151 + 7) % 256));
}

function toHex(hash, width) {
  return hash.toString(16).padStart(width, "0");
}

// A published value, of no bytes without a seed.
assert.equal(await xxhash128(""), "99aa06d3014798d86001c324468d497f");

async function findOthers(hash, reference, width, seed) {
  const others = [];
  for (const length of LENGTHS) {
    const bytes = makeBytes(length);
    if (toHex(hash(bytes, BigInt(seed)), width) !== await reference(bytes, seed, 0)) {
      others.push(length);
    }
  }
  return others;
}

for (const seed of [0, SEED]) {
  assert.deepEqual(await findOthers(XXH64, xxhash64, 16, seed), []);
  const others = await findOthers(XXH3_128, xxhash128, 32, seed);
  console.log(`seed ${seed}: ${others.length} of ${LENGTHS.length} lengths have another hash`);
  assert.deepEqual(others, seed === 0 ? [2, 3] : LENGTHS.filter(length => (length > 1 && length < 17) || length > 240));
}

for (const text of ["é", "日", "ab", "abc"]) {
  const same = toHex(XXH3_128(Buffer.from(text)), 32) === await xxhash128(text);
  console.log(`"${text}" without a seed: ${same ? "the same" : "another hash"}`);
  assert.equal(same, text.startsWith("a"));
}

const long = makeBytes(300);
const hashes = new Set([0n, 1n, 42n, 2n ** 63n].map(seed => XXH3_128(long, seed)));
console.log(`300 bytes with four seeds: ${hashes.size} hash`);
assert.equal(hashes.size, 1);
assert.equal(new Set([0n, 1n, 42n].map(seed => XXH3_128(makeBytes(200), seed))).size, 3);
assert.notEqual(await xxhash128(long, 1, 0), await xxhash128(long, 2, 0));
JAVASCRIPT
node hashes.mjs
