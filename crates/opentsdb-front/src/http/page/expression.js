// Expressions over sub-queries: `a / b * 100`, `movingAverage(a, 10)`.
//
// `/api/query/gexp` evaluates them. It is used in place of `/api/query/exp` because each of its sub-queries has a
// downsampling and a rate of its own and because its response has the form of `/api/query`; `/api/query/exp` has one of
// each for all. Its syntax has calls only, so arithmetic is translated: `a / b * 100` is `scale(divide(A,B),100)`, where
// A and B are the texts of the sub-queries. Its sub-queries have filters of grouping literals and wildcards only.

import { formatMetric } from './metric-text.js';

const CALLS = { '+': 'sum', '-': 'difference', '*': 'multiply', '/': 'divide' };

/** Functions of expressions, with an example. */
export const FUNCTIONS = [
  'absolute(a)', 'alias(a,name)', 'difference(a,b)', 'divide(a,b)', 'highestCurrent(a,5)', 'highestMax(a,5)',
  "movingAverage(a,'5min')", 'multiply(a,b)', 'scale(a,100)', "shift(a,'1h')", 'sum(a,b)',
];

/** The text of a sub-query within an expression. @param {import('./metric-text.js').SubQuery} sub */
function subQueryText(sub, letter, auto) {
  const problem = (text) => new Error(`Sub-query ${letter.toUpperCase()} ${text}, which expressions cannot have.`);
  if (!sub.metric) throw new Error(`Sub-query ${letter.toUpperCase()} has no metric.`);
  if (sub.rate && sub.counter) throw problem('has counter options');
  if (sub.explicit || sub.percentiles) throw problem('has explicit tags or percentiles');
  // The server's syntax has `*` as a whole value only.
  const isPlain = ({ key, value, type, group }) => !key || !value ||
    (group && (type === 'literal_or' || type === 'wildcard') && (value === '*' || /^[\w\-#/$@|.]+$/.test(value)));
  if (!sub.tags.every(isPlain)) throw problem('has a filter that does not group, or is no literal or wildcard');
  return formatMetric(sub, auto);
}

/**
 * The call of an expression. A letter in it is a sub-query.
 * @param {string} text @param {import('./metric-text.js').SubQuery[]} subs @param {string} auto
 */
export function toCall(text, subs, auto) {
  let at = 0;
  const fail = (reason) => { throw new Error(`${reason} at character ${at + 1}.`); };
  const skip = () => { while (/\s/.test(text[at] ?? '')) at++; };
  const take = (sign) => { skip(); if (text[at] !== sign) return false; at++; return true; };
  const word = (form) => {
    skip();
    const match = form.exec(text.slice(at));
    if (match) at += match[0].length;
    return match?.[0];
  };

  function sum() {
    let left = product();
    for (;;) {
      const sign = take('+') ? '+' : take('-') ? '-' : '';
      if (!sign) return left;
      left = combine(sign, left, product());
    }
  }
  function product() {
    let left = factor();
    for (;;) {
      const sign = take('*') ? '*' : take('/') ? '/' : '';
      if (!sign) return left;
      left = combine(sign, left, factor());
    }
  }
  function combine(sign, left, right) {
    const [a, b] = [left.number, right.number];
    if (a !== undefined && b !== undefined) return { number: sign === '+' ? a + b : sign === '-' ? a - b : sign === '*' ? a * b : a / b };
    if (a === undefined && b === undefined) return { call: `${CALLS[sign]}(${left.call},${right.call})` };
    if (sign === '*') return { call: `scale(${left.call ?? right.call},${a ?? b})` };
    if (sign === '/' && b !== undefined) return { call: `scale(${left.call},${1 / b})` };
    return fail(`A number can only multiply or divide series, “${sign}” is neither,`);
  }
  function factor() {
    if (take('(')) {
      const inner = sum();
      if (!take(')')) fail('Missing “)”');
      return inner;
    }
    const number = word(/^-?\d+(\.\d+)?(e[+-]?\d+)?/i);
    if (number) return { number: Number(number) };
    const name = word(/^[a-z]\w*/i);
    if (!name) fail('Expected a sub-query (a, b, …), a number or a function');
    if (take('(')) return { call: `${name}(${parameters().join(',')})` };
    const sub = name.length === 1 ? subs[name.toLowerCase().charCodeAt(0) - 97] : undefined;
    if (!sub) fail(`“${name}” is no sub-query`);
    return { call: subQueryText(sub, name, auto) };
  }
  /** Arguments up to the closing bracket: expressions, quoted texts, names, and sub-queries in full. */
  function parameters() {
    const all = [];
    do {
      const literal = word(/^('[^']*'|[\w.@-]+:[^(),{]*(\{[^{}]*\})?|[@\w.$#-]{2,}(?=\s*[,)]))/);
      if (literal) all.push(literal.trim());
      else {
        const value = sum();
        all.push(value.call ?? String(value.number));
      }
    } while (take(','));
    if (!take(')')) fail('Missing “)”');
    return all;
  }

  const result = sum();
  skip();
  if (at < text.length) fail(`Unexpected “${text[at]}”`);
  if (!result.call) throw new Error('The expression has no sub-query.');
  // The server takes calls only: a lone sub-query is scaled by 1.
  return /^\w+\(/.test(result.call) ? result.call : `scale(${result.call},1)`;
}
