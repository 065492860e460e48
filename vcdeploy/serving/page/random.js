// NumPy's PCG64 with its SeedSequence: a seed gives the same numbers, and so the same text, as in Python.

const WIDE = (1n << 128n) - 1n;
const LONG = (1n << 64n) - 1n;
const MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

// An endless iterator of doubles in [0, 1). seeds: whole numbers of 0 or more; several are one seed together.
export function* uniforms(...seeds) {
  const [a, b, c, d] = spread(seeds.flatMap(words));
  const increment = (((c << 64n) | d) << 1n | 1n) & WIDE;
  const next = (state) => (state * MULTIPLIER + increment) & WIDE;
  let state = next((next(0n) + ((a << 64n) | b)) & WIDE);
  for (;;) {
    state = next(state);
    const mixed = (state >> 64n) ^ (state & LONG);
    const turn = state >> 122n;
    const bits = ((mixed >> turn) | (mixed << (64n - turn))) & LONG;
    yield Number(bits >> 11n) / 2 ** 53;
  }
}

// The 32-bit words of a whole number, the lowest first.
function words(seed) {
  const found = [];
  for (let rest = BigInt(seed); rest > 0n || !found.length; rest >>= 32n) found.push(Number(rest & 0xffffffffn));
  return found;
}

// Four 64-bit numbers from any words.
function spread(entropy) {
  let constant = 0x43b0d7e5;
  const hashed = (word) => {
    word ^= constant;
    constant = Math.imul(constant, 0x931e8875);
    word = Math.imul(word, constant);
    return word ^ (word >>> 16);
  };
  const joined = (x, y) => {
    const both = Math.imul(x, 0xca01f9dd) - Math.imul(y, 0x4973f715);
    return both ^ (both >>> 16);
  };
  const pool = [0, 1, 2, 3].map((i) => hashed(entropy[i] ?? 0));
  for (let from = 0; from < 4; from++)
    for (let to = 0; to < 4; to++) if (from !== to) pool[to] = joined(pool[to], hashed(pool[from]));
  for (const word of entropy.slice(4)) for (let to = 0; to < 4; to++) pool[to] = joined(pool[to], hashed(word));
  constant = 0x8b51f9dd;
  const halves = Array.from({ length: 8 }, (_, i) => {
    let word = pool[i % 4] ^ constant;
    constant = Math.imul(constant, 0x58f38ded);
    word = Math.imul(word, constant);
    return BigInt((word ^ (word >>> 16)) >>> 0);
  });
  return [0, 2, 4, 6].map((i) => (halves[i + 1] << 32n) | halves[i]);
}
