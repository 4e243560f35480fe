import assert from 'node:assert/strict';
import test from 'node:test';
import { field, toCsv } from '../csv.js';

test('quotes what needs it and makes no formulas', () => {
  assert.deepEqual(['a.b', 'a,b', 'a"b', 'a\nb', ' a', '=1+1', '@x', ''].map(field), ['a.b', '"a,b"', '"a""b"', '"a\nb"', '" a"', "'=1+1", "'@x", '']);
});

test('writes a line for each point', () => {
  const series = [{ metric: 'm', tags: { host: 'a', dc: 'x,y' }, times: [1346846400000, 1346846400500], values: [1.5, NaN] }];
  assert.equal(toCsv(series, 'UTC'), 'metric,tags,timestamp_ms,time,value\r\n' +
    'm,"host=a dc=x,y",1346846400000,2012-09-05 12:00:00,1.5\r\nm,"host=a dc=x,y",1346846400500,2012-09-05 12:00:00.500,\r\n');
});
