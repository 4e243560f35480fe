import assert from 'node:assert/strict';
import test from 'node:test';
import { ArrayStream } from '../json-stream.js';

/** The elements of a text that arrives in pieces of a size. */
function parsed(text, size) {
  const stream = new ArrayStream();
  const elements = [];
  for (let i = 0; i < text.length; i += size) elements.push(...stream.push(text.slice(i, i + size)));
  stream.end();
  return elements;
}

test('parses the same whatever the pieces are', () => {
  const values = [{ metric: 'a]},{"', tags: { 'x"\\': '\\"[' }, dps: [[1, 2.5], [2, 'NaN'], [3, null]] }, [], {}, 'text, with "quotes"', 1e9, null, true, [[[]]], '😀'];
  for (const text of [JSON.stringify(values), JSON.stringify(values, null, 2), ' \n' + JSON.stringify(values) + '\n']) {
    for (let size = 1; size < 40; size++) assert.deepEqual(parsed(text, size), values, `pieces of ${size}`);
    assert.deepEqual(parsed(text, text.length), values);
  }
});

test('returns an element as soon as its comma arrives', () => {
  const stream = new ArrayStream();
  assert.deepEqual(stream.push('[{"a":1}'), []);
  assert.deepEqual(stream.push(',{"a":2}'), [{ a: 1 }]);
  assert.deepEqual(stream.push(']'), [{ a: 2 }]);
  stream.end();
});

test('takes empty arrays', () => {
  for (const text of ['[]', ' [ \n ] ']) assert.deepEqual(parsed(text, 1), []);
});

test('rejects a response that is cut, is no array, or has text behind it', () => {
  for (const text of ['', '[', '[{"a":1}', '[{"a":1},', '["a', '[[1]']) {
    const stream = new ArrayStream();
    stream.push(text);
    assert.throws(() => stream.end(), /ended before/, text);
  }
  for (const text of ['{"error":{}}', '1', '[] []', '[1,]', '[,1]', '[1,,2]', '[x]', '[}]']) assert.throws(() => parsed(text, 1), SyntaxError, text);
});
