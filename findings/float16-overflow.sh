#!/usr/bin/env bash
# With npm's float16, numbers above 65520 become NaN, and those from 131072 on small negative ones.
#
# Version: float16 0.0.1 (Node.js 20).
# Guess before the run: `float16ToByte` rounds to the nearest half-precision number, and what is too
#     large becomes infinity, as IEEE 754 says and as NumPy does. (Suspected after reading the
#     source.)
# Seen: the exponent is not limited. Up to 131072 it is that of NaN; from there on it runs into the
#     sign, and the sign of negative numbers adds up with it: 131072 is -0, 200,000 is -0.00003 and
#     1e10 is -84, and -200,000 needs 17 bits. Up to 65519, all finite numbers come back as the
#     nearest ones. Nothing is said.
# For gyre: it writes bfloat16 and float32. There, take @petamoriken/float16.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit float16@0.0.1 @petamoriken/float16@3.9.3
cat > round.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { createRequire } from "node:module";
import { f16round } from "@petamoriken/float16";

const { byteToFloat16, float16ToByte } = createRequire(import.meta.url)("float16");

for (let bits = 0; bits < 0x7c00; bits++) {  // all positive finite numbers
  const value = byteToFloat16(bits);
  assert(f16round(value) === value);
  for (const sign of [1, -1]) {
    const near = sign * value * (1 + 1e-5);  // rounds to the number itself
    assert(byteToFloat16(float16ToByte(near)) === sign * value && f16round(near) === sign * value);
  }
}
for (const [value, seen] of [[65504, 65504], [65519, 65504], [70000, NaN], [1e5, NaN],
                             [131072, -0], [2e5, -3.2127e-5], [1e6, -2.3282e-4],
                             [1e10, -84.0625]]) {
  const bits = float16ToByte(value);
  const back = byteToFloat16(bits);
  console.log(`${value}: bits 0x${bits.toString(16)}, ${back}, where ${f16round(value)} is due`);
  assert(f16round(value) === (value < 65520 ? 65504 : Infinity));
  assert(Object.is(back, seen) || Math.abs(back / seen - 1) < 1e-4);
}
console.log(`-200000: bits 0x${float16ToByte(-200000).toString(16)}`);
assert(float16ToByte(-200000) > 0xffff);
JAVASCRIPT
node round.mjs
