// What generated symbols cost: their colour, and their share of a dense GRU's operations (vcdeploy/cost.py).

const PRODUCTS = { vcrnn: 2, vcgru: 6, vclstm: 8 }; // multiply-accumulates per a²

// The class of page.css for m.
export const colour = (m) => `m${Math.min(9, Math.floor(m * 10))}`;

// Operations of steps with these m, divided by those of a dense GRU with as many dimensions and layers; null if the
// unit is dense. With several layers m is their mean, and the share is at most the true one.
export function shareOfGru(m, { unit, dim, sharpness, epsilon }) {
  if (!(unit in PRODUCTS) || !m.length) return null;
  const reach = Math.log((1 - epsilon) / epsilon) / sharpness;
  const squares = m.map((each) => Math.min(dim, Math.max(0, Math.floor(each * dim + reach))) ** 2);
  return (PRODUCTS[unit] * mean(squares) + 2 * dim) / (PRODUCTS.vcgru * dim ** 2);
}

export const mean = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;
export const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
