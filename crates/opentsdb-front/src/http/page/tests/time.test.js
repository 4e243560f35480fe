import assert from 'node:assert/strict';
import test from 'node:test';
import { formatTime, isRelative, niceInterval, parseDuration, parseRange, parseTime, showTime } from '../time.js';

const NOW = 1_346_846_400_000; // 2012-09-05 12:00:00 UTC

test('parses all forms of times', () => {
  const forms = [
    ['', NOW], ['now', NOW], ['1h-ago', NOW - 3600e3], ['2 d ago', NOW - 2 * 86400e3], ['90S-AGO', NOW - 90e3], ['1n-ago', NOW - 30 * 86400e3],
    ['1346846400', NOW], ['1346846400000', NOW], ['1346846400123ms', NOW + 123], ['1346846400.123', NOW + 123],
    ['2012/09/05-12:00:00', NOW], ['2012/09/05 12:00', NOW], ['2012-09-05T12:00:00', NOW], ['2012/09/05', NOW - 12 * 3600e3],
  ];
  for (const [text, expected] of forms) assert.equal(parseTime(text, NOW, 'UTC'), expected, text);
});

test('rejects other texts with an example', () => {
  for (const text of ['soon', '1x-ago', '-5', '2012/09', '0h-ago']) assert.throws(() => parseTime(text, NOW, 'UTC'), /duration|Examples/, text);
});

test('dates are on the wall clock of their zone', () => {
  assert.equal(parseTime('2013/01/01-00:00', 0, 'America/New_York'), 1_357_016_400_000);
  assert.equal(parseTime('2013/01/01-00:00', 0, 'Asia/Kolkata'), 1_356_978_600_000);
  assert.equal(parseTime('2013/03/10-02:30', 0, 'America/New_York'), 1_362_900_600_000);
  assert.equal(formatTime(1_357_016_400_000, 'America/New_York'), '2013/01/01-00:00:00');
  assert.equal(showTime(NOW + 5, 'Europe/Berlin'), '2012-09-05 14:00:00.005');
});

test('formatted times parse to themselves, also around changes of the clock', () => {
  for (const zone of ['UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'Asia/Kathmandu']) {
    for (let at = Date.UTC(2024, 0, 1); at < Date.UTC(2025, 0, 1); at += 86400e3 * 3 + 1234e3) {
      assert.equal(parseTime(formatTime(at, zone), 0, zone), at, `${zone} ${at}`);
    }
  }
});

test('ranges name the field that is wrong', () => {
  const field = (start, end) => {
    try {
      parseRange({ start, end, tz: '' }, NOW);
      return null;
    } catch (error) {
      return error.field;
    }
  };
  assert.deepEqual(parseRange({ start: '1h-ago', end: '', tz: '' }, NOW), { from: NOW - 3600e3, to: NOW });
  assert.equal(field('', ''), 'start');
  assert.equal(field('x', ''), 'start');
  assert.equal(field('1h-ago', 'x'), 'end');
  assert.equal(field('1h-ago', '2h-ago'), 'end');
});

test('durations and intervals', () => {
  assert.equal(parseDuration('90s'), 90e3);
  for (const text of ['', '5', 'h', '0m', '1.5h', '99999999999999999y']) assert.equal(parseDuration(text), null, text);
  assert.equal(niceInterval(3600e3, 400), '10s');
  assert.equal(niceInterval(30 * 86400e3, 400), '2h');
  assert.ok(isRelative('1h-ago') && isRelative('') && isRelative('now') && !isRelative('2012/01/01'));
});
