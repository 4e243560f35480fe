import assert from 'node:assert/strict';
import test from 'node:test';
import { lowerBound, nearest, reduce, summary } from '../reduce.js';

const line = (count, value) => ({ times: Float64Array.from({ length: count }, (_, i) => i * 1000), values: Float64Array.from({ length: count }, (_, i) => value(i)) });

test('keeps one spike and one dip among a million points', () => {
  const { times, values } = line(1_000_000, (i) => (i === 654_321 ? 1e6 : i === 123_456 ? -1e6 : i % 7));
  const indices = reduce(times, values, 0, 1e9, 800);
  assert.ok(indices.length <= 800 * 4 + 4, `${indices.length} points`);
  assert.ok(indices.includes(654_321) && indices.includes(123_456));
  assert.ok(indices.every((index, place) => place === 0 || index > indices[place - 1]), 'in the order of time');
});

test('keeps the smallest, largest, first and last point of each column', () => {
  let seed = 1;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  const { times, values } = line(5000, () => (random() < 0.02 ? NaN : random()));
  const [from, to, columns] = [500e3, 4500e3, 100];
  const kept = new Set(reduce(times, values, from, to, columns));
  const column = (i) => Math.floor((times[i] - from) * (columns / (to - from)));
  for (let c = 0; c < columns; c++) {
    const all = [...times.keys()].filter((i) => column(i) === c && !Number.isNaN(values[i]));
    const by = (compare) => all.reduce((best, i) => (compare(values[i], values[best]) ? i : best), all[0]);
    for (const index of [all[0], all.at(-1), by((a, b) => a < b), by((a, b) => a > b)]) assert.ok(kept.has(index), `column ${c}`);
  }
});

test('draws few points as they are, with one on each side of the range', () => {
  const { times, values } = line(10, (i) => i);
  assert.deepEqual(reduce(times, values, 2500, 5500, 100), [2, 3, 4, 5, 6]);
  assert.deepEqual(reduce(times, values, -10, 1e9, 100).length, 10);
  assert.deepEqual(reduce(new Float64Array(), new Float64Array(), 0, 1, 100), []);
});

test('a column of gaps breaks the line', () => {
  const { times, values } = line(10_000, (i) => (i >= 4000 && i < 6000 ? NaN : 1));
  const indices = reduce(times, values, 0, 10_000_000, 100);
  assert.ok(indices.some((index) => Number.isNaN(values[index])));
});

test('finds points and sums values up', () => {
  const { times, values } = line(5, (i) => (i === 2 ? NaN : i));
  assert.equal(lowerBound(times, 1500), 2);
  assert.deepEqual([nearest(times, 1400), nearest(times, 1600), nearest(times, -5), nearest(times, 9e9), nearest([], 0)], [1, 2, 0, 4, -1]);
  assert.deepEqual(summary(times, values), { min: 0, max: 4, avg: 2, last: 4, count: 4 });
  assert.deepEqual(summary(times, values, 1000, 3000), { min: 1, max: 3, avg: 2, last: 3, count: 2 });
  assert.equal(summary(times, values, 1e9).count, 0);
});
