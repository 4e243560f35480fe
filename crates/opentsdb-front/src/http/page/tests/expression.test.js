import assert from 'node:assert/strict';
import test from 'node:test';
import { toCall } from '../expression.js';
import { parseMetric } from '../metric-text.js';

const subs = ['sum:a{h=*}', 'max:1m-avg:rate:b', 'sum:c{}{h=x}', 'sum:rate{counter}:d'].map(parseMetric);
const call = (text) => toCall(text, subs, '1m');

test('translates arithmetic to calls', () => {
  const cases = [
    ['a', 'scale(sum:a{h=*},1)'], ['a / b * 100', 'scale(divide(sum:a{h=*},max:1m-avg:rate:b),100)'], ['a + b - A', 'difference(sum(sum:a{h=*},max:1m-avg:rate:b),sum:a{h=*})'],
    ['2 * (a - b)', 'scale(difference(sum:a{h=*},max:1m-avg:rate:b),2)'], ['a / 4', 'scale(sum:a{h=*},0.25)'], ['a * -1', 'scale(sum:a{h=*},-1)'], ['a * (1 + 1)', 'scale(sum:a{h=*},2)'],
    ["movingAverage(a, '5min')", "movingAverage(sum:a{h=*},'5min')"], ['alias(a / b,ratio)', 'alias(divide(sum:a{h=*},max:1m-avg:rate:b),ratio)'], ['highestMax(a, 5)', 'highestMax(sum:a{h=*},5)'],
    ['sum(sum:x{h=*,d=y}, a)', 'sum(sum:x{h=*,d=y},sum:a{h=*})'],
  ];
  for (const [text, expected] of cases) assert.equal(call(text), expected, text);
});

test('rejects what the server could not evaluate, with the reason', () => {
  const cases = [['a + 1', /only multiply/], ['z', /no sub-query/], ['a +', /Expected/], ['(a', /Missing/], ['a b', /Unexpected/], ['1 + 1', /has no sub-query/],
    ['c * 2', /C has a filter/], ['d * 2', /D has counter options/], ['', /Expected/], ['1 / a', /only multiply/]];
  for (const [text, expected] of cases) assert.throws(() => call(text), expected, text);
});
