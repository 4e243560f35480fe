import assert from 'node:assert/strict';
import test from 'node:test';
import { formatLink, isQuery, newState, parseBounds, parseLink } from '../link.js';
import { formatMetric, newSubQuery, parseMetric, toJson } from '../metric-text.js';

test('opens the bookmarks of OpenTSDB', () => {
  const state = parseLink('#start=2012/09/05-12:00:00&end=2012/09/05-13:00:00&m=sum:1m-avg-nan:rate%7Bcounter,,100%7D:sys.cpu.nice%7Bhost=*,dc=lga%7Ccdg%7D%7Brack=wildcard(r*)%7D' +
    '&o=axis%20x1y2&m=max:proc.stat.cpu&o=&ylabel=load%20%25&yrange=%5B0:1e+9%5D&y2range=[:5]&ylog&key=out%20right%20top%20box&wxh=1240x640&style=linespoint&smooth=csplines&autoreload=15&global_annotations=true&new=1');
  const { subs } = state;
  assert.deepEqual(subs[0], { ...newSubQuery(), metric: 'sys.cpu.nice', ds: true, interval: '1m', fn: 'avg', fill: 'nan', rate: true, counter: true, reset: '100', right: true, tags: [
    { key: 'host', type: 'wildcard', value: '*', group: true }, { key: 'dc', type: 'literal_or', value: 'lga|cdg', group: true },
    { key: 'rack', type: 'wildcard', value: 'r*', group: false }] });
  assert.deepEqual([subs[1].agg, subs[1].metric, subs[1].right], ['max', 'proc.stat.cpu', false]);
  assert.deepEqual([state.start, state.tz, state.reload, state.ylog, state.global_annotations], ['2012/09/05-12:00:00', 'UTC', 15, true, true]);
  assert.deepEqual([state.ylabel, state.yrange, state.y2range, state.key, state.wxh, state.style], ['load %', '[0:1e+9]', '[:5]', 'out right top box', '1240x640', 'linespoint']);
  assert.deepEqual(state.others, [['new', '1']]);
});

test('opens links that nobody encoded', () => {
  const state = parseLink('#start=1h-ago&m=sum:a{host=*}&o=axis x1y2&yformat=%.2f&ylabel=100%');
  assert.deepEqual([state.subs[0].metric, state.subs[0].right, state.yformat, state.ylabel, state.tz], ['a', true, '%.2f', '100%', '']);
});

test('a link holds all of a state', () => {
  const sub = { ...newSubQuery(), metric: 'sys.cpu', ds: true, interval: '1dc', fn: 'p99', fill: 'zero', rate: true, counter: true, drop: true, max: '100', explicit: true, percentiles: '99,99.9',
    tags: [{ key: 'host', type: 'regexp', value: '^web[0-9]{1,2}(a|b),c=d[(]$', group: true }, { key: 'uri', type: 'literal_or', value: '/api/{id}{b}&x=1#%28', group: true },
      { key: 'star', type: 'literal_or', value: 'a*', group: true }, { key: 'x', type: 'literal_or', value: '<img src=x onerror=alert(1)>', group: false }] };
  const state = { ...newState(), start: '2012/09/05-12:00:00', end: '1346850000', tz: 'Europe/Berlin', reload: 60, yrange: '[-1e+3:5]', y2log: true, title: 'a & b #1 + é', table: true, nokey: true,
    subs: [sub, { ...newSubQuery(), metric: 'b', ds: true, off: true }, { ...newSubQuery(), tsuids: '000001000001000001,000001000001000002', agg: 'max', right: true }],
    exprs: [{ text: 'a / b * 100', right: true, off: true }, { text: "shift(a,'1h')", right: false, off: false }], others: [['later', 'x y']] };
  assert.deepEqual(parseLink('#' + formatLink(state, '1m')), state);
  assert.ok(!/[<>" ]/.test(formatLink(state)));
});

test('an automatic interval is a real one to others', () => {
  const state = { ...newState(), subs: [{ ...newSubQuery(), metric: 'a', ds: true }] };
  assert.equal(formatLink(state, '5m'), 'start=1h-ago&m=sum:5m-avg:a&o=&auto=1');
});

test('a sub-query without a metric is in no link', () => {
  assert.equal(formatLink(newState()), 'start=1h-ago');
  assert.deepEqual(parseLink('#start=1h-ago'), newState());
});

test('random texts parse without a failure, and what they become stays', () => {
  let seed = 7;
  const random = (below) => (seed = (seed * 16807) % 2147483647) % below;
  const words = ['m=', '&', 'sum', ':', '1m-avg', 'rate', '{', '}', 'a=b', ',', '*', '%', '%2', '+', '=', 'o=axis x1y2', 'start=', '(', ')', '|', 'tsuid=', 'exp=a', 'off=1', '#', 'é'];
  for (let i = 0; i < 20_000; i++) {
    const text = Array.from({ length: random(12) }, () => words[random(words.length)]).join('');
    const state = parseLink('#' + text);
    const again = formatLink(parseLink('#' + formatLink(state)));
    assert.equal(formatLink(parseLink('#' + again)), again, text);
  }
});

test('metric texts', () => {
  for (const text of ['sum:a', 'sum:1m-avg:a{host=*}', 'avg:10s-max-nan:rate{counter,100,5}:a{host=web*,dc=a|b}', 'sum:rate:a{}{host=regexp(web.*)}', 'max:explicit_tags:a{x=y}', 'sum:0all-sum:a', 'sum:rate{dropcounter}:a:b']) {
    assert.equal(formatMetric(parseMetric(text), ''), text);
  }
  assert.equal(parseMetric('sum:1m-avg:x:y').metric, 'x:y');
  assert.equal(parseMetric('nothing'), null);
});

test('sub-queries of a POST', () => {
  assert.deepEqual(toJson(parseMetric('sum:1m-avg:rate{counter,9}:a{h=*}{d=x}'), ''), {
    aggregator: 'sum', metric: 'a', downsample: '1m-avg-none', rate: true, rateOptions: { counter: true, dropResets: false, counterMax: '9' },
    filters: [{ type: 'wildcard', tagk: 'h', filter: '*', groupBy: true }, { type: 'literal_or', tagk: 'd', filter: 'x', groupBy: false }] });
});

test('bounds of axes', () => {
  assert.deepEqual(['[0:]', '[:1e3]', '[*:*]', '[-5:5]', '', 'x'].map((text) => Object.values(parseBounds(text))), [[0, null], [null, 1000], [null, null], [-5, 5], [null, null], [null, null]]);
});

test('hashes of views are no queries', () => {
  assert.deepEqual(['#server', '', '#start=1h-ago', '#o=&m=sum:a', '#uids'].map(isQuery), [false, false, true, true, false]);
});
