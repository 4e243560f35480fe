// The link of a query: OpenTSDB's bookmarks, `#start=1h-ago&m=sum:1m-avg:sys.cpu{host=*}&o=axis x1y2&yrange=[0:]&…`.
//
// Parameters of OpenTSDB keep their names and forms; its names of boxes of the key and of styles stay in the link even if
// the page does not draw them. The page adds `exp` (expressions, `oexp` their axes), `off` (disabled sub-queries),
// `auto` (sub-queries with an automatic interval), `show=table`, and `tz` with each absolute time.

import { formatMetric, newSubQuery, parseMetric } from './metric-text.js';
import { isRelative, isZone } from './time.js';

/** Parameters that are texts of the state. */
const TEXTS = ['yrange', 'y2range', 'ylabel', 'y2label', 'yformat', 'y2format', 'key', 'wxh', 'style', 'smooth', 'title'];
const FLAGS = ['ylog', 'y2log', 'nokey', 'global_annotations', 'no_annotations'];

/** The state of an empty page. */
export function newState() {
  const state = { start: '1h-ago', end: '', tz: '', reload: 0, subs: [newSubQuery()], exprs: [], table: false, others: [] };
  for (const name of TEXTS) state[name] = '';
  for (const name of FLAGS) state[name] = false;
  return state;
}

const decode = (text) => {
  try {
    return decodeURIComponent(text.replaceAll('+', '%20'));
  } catch {
    return text; // A bookmark that was never encoded may have a percent sign.
  }
};

/** Name and value of each parameter. A `+` stays one in `e+9` of ranges, where OpenTSDB does not encode it. */
function pairs(hash) {
  return hash.replace(/^#/, '').split('&').filter(Boolean).map((text) => {
    const equals = text.indexOf('=');
    const name = equals < 0 ? text : text.slice(0, equals), value = equals < 0 ? '' : text.slice(equals + 1);
    return [decode(name), decode(/^y2?range$/.test(name) ? value.replaceAll('+', '%2B') : value)];
  });
}

/** Places in a list, from `1,3`. */
const places = (text) => new Set(text.split(',').map((place) => Number(place) - 1));

/** Whether a hash is one of a query. @param {string} hash */
export const isQuery = (hash) => /^#?([^&]*&)*(start|m|exp|tsuid)=/.test(hash);

/** The state of a link. @param {string} hash */
export function parseLink(hash) {
  const state = { ...newState(), subs: [] };
  const axes = [], expressionAxes = [];
  let off = new Set(), auto = new Set();
  for (const [name, value] of pairs(hash)) {
    if (name === 'm') {
      const sub = parseMetric(value);
      state.subs.push(sub ?? { ...newSubQuery(), metric: value });
    } else if (name === 'tsuid' || name === 'tsuids') {
      const colon = value.indexOf(':');
      state.subs.push({ ...newSubQuery(), agg: value.slice(0, Math.max(0, colon)) || 'sum', tsuids: value.slice(colon + 1) });
    } else if (name === 'o') axes.push(value);
    else if (name === 'exp') state.exprs.push({ text: value, right: false, off: false });
    else if (name === 'oexp') expressionAxes.push(value);
    else if (name === 'start' || name === 'end') state[name] = value;
    else if (name === 'tz') state.tz = isZone(value) ? value : '';
    else if (name === 'autoreload') state.reload = Math.max(5, Number.parseInt(value, 10) || 15);
    else if (name === 'off') off = places(value);
    else if (name === 'auto') auto = places(value);
    else if (name === 'show') state.table = value === 'table';
    else if (TEXTS.includes(name)) state[name] = value;
    else if (FLAGS.includes(name)) state[name] = value !== 'false';
    else if (name !== 'ignore' && name !== 'json' && name !== 'png') state.others.push([name, value]);
  }
  if (state.subs.length === 0) state.subs.push(newSubQuery());
  state.subs.forEach((sub, place) => {
    sub.right = (axes[place] ?? '').includes('axis x1y2');
    sub.off = off.has(place);
    if (auto.has(place) && sub.ds) sub.interval = 'auto';
  });
  state.exprs.forEach((expression, place) => {
    expression.right = (expressionAxes[place] ?? '').includes('axis x1y2');
    expression.off = off.has(state.subs.length + place);
  });
  if (!state.tz && ![state.start, state.end].every(isRelative)) state.tz = 'UTC';
  return state;
}

/** Encodes what has a meaning in a link, and leaves what people read. */
const encode = (text) => encodeURIComponent(text).replace(/%(3A|7B|7D|2C|2F|3D|2A|5B|5D|7C|28|29|24|40)/g, decodeURIComponent);

/** The link of a state, without `#`. @param {ReturnType<newState>} state @param {string} auto the interval that `auto` stands for */
export function formatLink(state, auto = '1m') {
  const parts = [];
  const add = (name, value) => parts.push(value === '' ? name : `${name}=${encode(value)}`);
  add('start', state.start.trim());
  if (state.end.trim()) add('end', state.end.trim());
  if (state.tz) add('tz', state.tz);
  const subs = state.subs.filter((sub) => sub.metric || sub.tsuids);
  for (const sub of subs) {
    if (sub.tsuids) add('tsuid', `${sub.agg}:${sub.tsuids}`);
    else add('m', formatMetric(sub, auto));
    parts.push(sub.right ? 'o=axis%20x1y2' : 'o=');
  }
  const exprs = state.exprs.filter((expression) => expression.text.trim());
  for (const expression of exprs) add('exp', expression.text.trim());
  if (exprs.some((expression) => expression.right)) {
    for (const expression of exprs) parts.push(expression.right ? 'oexp=axis%20x1y2' : 'oexp=');
  }
  const list = (of) => [...subs, ...exprs].flatMap((item, place) => (of(item) ? [place + 1] : [])).join(',');
  const off = list((item) => item.off), automatic = list((item) => item.ds && item.interval === 'auto');
  if (off) add('off', off);
  if (automatic) add('auto', automatic);
  for (const name of TEXTS) if (state[name]) add(name, state[name]);
  for (const name of FLAGS) if (state[name]) parts.push(name);
  if (state.reload) add('autoreload', String(state.reload));
  if (state.table) add('show', 'table');
  for (const [name, value] of state.others) add(name, value);
  return parts.join('&');
}

/** The bounds of `[0:100]`, `[:1e9]`, `[*:5]`; null without a bound. @param {string} text */
export function parseBounds(text) {
  const match = /^\[([^:\]]*):([^:\]]*)\]$/.exec(text.trim());
  const bound = (part) => (part === undefined || part === '' || part === '*' || !Number.isFinite(Number(part)) ? null : Number(part));
  return { min: bound(match?.[1].trim()), max: bound(match?.[2].trim()) };
}
