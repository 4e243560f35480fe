// Sub-queries in OpenTSDB's query language, `sum:1m-avg-none:rate{counter,100}:sys.cpu{host=*}{dc=literal_or(lga)}`.
//
// The first braces have filters that group, the second ones filters that do not. A metric may have colons here if its
// name is not taken for an option.

/** @typedef {{key: string, type: string, value: string, group: boolean}} TagFilter */
/**
 * @typedef {object} SubQuery
 * @property {string} metric
 * @property {string} agg
 * @property {boolean} ds whether to downsample
 * @property {string} interval `1m`, or `auto`: it follows the range
 * @property {string} fn @property {string} fill
 * @property {boolean} rate @property {boolean} counter @property {boolean} drop
 * @property {string} max @property {string} reset
 * @property {TagFilter[]} tags
 * @property {boolean} explicit
 * @property {string} percentiles `99,99.9`, of histograms
 * @property {string} tsuids in place of a metric
 * @property {boolean} right @property {boolean} off
 */

/** @returns {SubQuery} */
export const newSubQuery = () => ({
  metric: '', agg: 'sum', ds: false, interval: 'auto', fn: 'avg', fill: 'none', rate: false, counter: false, drop: false,
  max: '', reset: '', tags: [], explicit: false, percentiles: '', tsuids: '', right: false, off: false,
});

/** Splits at a separator that is outside of brackets. @param {string} text @param {string} separator */
export function split(text, separator) {
  const parts = [];
  let depth = 0, from = 0;
  for (let i = 0; i < text.length; i++) {
    if ('({['.includes(text[i])) depth++;
    else if (')}]'.includes(text[i])) depth = Math.max(0, depth - 1);
    else if (text[i] === separator && depth === 0) {
      parts.push(text.slice(from, i));
      from = i + 1;
    }
  }
  parts.push(text.slice(from));
  return parts;
}

/** Whether each bracket has a partner. */
function isPaired(text) {
  let depth = 0;
  for (const sign of text) {
    if ('({['.includes(sign)) depth++;
    else if (')}]'.includes(sign) && --depth < 0) return false;
  }
  return depth === 0;
}

// OpenTSDB has no way to write a bracket that has no partner; in links of the page it is percent-encoded.
const escape = (text) => (!isPaired(text) || /%(28|29|5B|5D|7B|7D|2C|3D|25)/.test(text)
  ? text.replace(/[%(){}[\],=]/g, (sign) => '%' + sign.charCodeAt(0).toString(16).toUpperCase()) : text);
const unescape = (text) => text.replace(/%(28|29|5B|5D|7B|7D|2C|3D|25)/g, decodeURIComponent);

/** A filter of the text `key=value` or `key=type(value)`. @returns {TagFilter | null} */
function parseFilter(text, group) {
  const equals = text.indexOf('=');
  if (equals < 1 || equals === text.length - 1) return null;
  const key = unescape(text.slice(0, equals).trim()), value = text.slice(equals + 1).trim();
  const call = /^([a-z_]+)\(([^]*)\)$/i.exec(value);
  if (call) return { key, type: call[1].toLowerCase(), value: unescape(call[2]), group };
  return { key, type: value.includes('*') ? 'wildcard' : 'literal_or', value: unescape(value), group };
}

function formatFilter({ key, type, value, group }) {
  const isPlain = /^[^\s,{}()[\]=%]+$/.test(value) && group && type === (value.includes('*') ? 'wildcard' : 'literal_or');
  return `${escape(key)}=${isPlain ? value : `${type}(${escape(value)})`}`;
}

/** The metric and filters of `metric{…}{…}`. */
export function parseSeries(text) {
  const open = text.indexOf('{');
  if (open < 0) return { metric: text.trim(), tags: [] };
  const groups = [];
  let depth = 0, from = 0;
  for (let i = open; i < text.length; i++) {
    if ('({['.includes(text[i]) && depth++ === 0) from = i + 1;
    else if (')}]'.includes(text[i]) && depth > 0 && --depth === 0) groups.push(text.slice(from, i));
  }
  if (depth > 0) groups.push(text.slice(from)); // The bracket that closes is missing.
  const tags = groups.flatMap((filters, place) => split(filters, ',').map((filter) => parseFilter(filter, place === 0)));
  return { metric: text.slice(0, open).trim(), tags: tags.filter((tag) => tag !== null) };
}

const OPTIONS = [
  [/^\d+[a-z]*-[a-z]/i, (sub, text) => {
    const [interval, fn, fill] = text.split('-');
    Object.assign(sub, { ds: true, interval, fn, fill: (fill ?? 'none').toLowerCase() });
  }],
  [/^rate(\{.*\})?$/i, (sub, text) => {
    const [kind = '', max = '', reset = ''] = text.slice(5, -1).split(',').map((part) => part.trim());
    const counter = /counter$/i.test(kind);
    Object.assign(sub, { rate: true, counter, drop: /^drop/i.test(kind), max: counter ? max : '', reset: counter ? reset : '' });
  }],
  [/^explicit_tags$/i, (sub) => { sub.explicit = true; }],
  [/^percentiles?\[.*\]$/i, (sub, text) => { sub.percentiles = text.slice(text.indexOf('[') + 1, -1); }],
];

/** A sub-query of its text; null if it is none. @param {string} text @returns {SubQuery | null} */
export function parseMetric(text) {
  const [agg, ...rest] = split(text, ':');
  if (!agg || rest.length === 0) return null;
  const sub = { ...newSubQuery(), agg: agg.trim() };
  while (rest.length > 1) {
    const option = OPTIONS.find(([form]) => form.test(rest[0].trim()));
    if (!option) break;
    option[1](sub, rest.shift().trim());
  }
  return Object.assign(sub, parseSeries(rest.join(':')));
}

/** The option `rate…`. @param {SubQuery} sub */
function formatRate({ counter, drop, max, reset }) {
  if (!counter) return ':rate';
  const options = [drop ? 'dropcounter' : 'counter', max, reset];
  while (options.at(-1) === '') options.pop();
  return `:rate{${options.join(',')}}`;
}

/** The text up to the metric. @param {SubQuery} sub @param {string} auto the interval that `auto` stands for */
function formatOptions(sub, auto) {
  let text = sub.agg;
  if (sub.ds) text += `:${sub.interval === 'auto' ? auto : sub.interval}-${sub.fn}${sub.fill === 'none' ? '' : '-' + sub.fill}`;
  if (sub.rate) text += formatRate(sub);
  if (sub.explicit) text += ':explicit_tags';
  if (sub.percentiles) text += `:percentiles[${sub.percentiles}]`;
  return text;
}

/** The text of a sub-query. @param {SubQuery} sub @param {string} auto the interval that `auto` stands for */
export function formatMetric(sub, auto) {
  const filters = (group) => sub.tags.filter((tag) => tag.key && tag.value && tag.group === group).map(formatFilter).join(',');
  const [grouping, other] = [filters(true), filters(false)];
  return `${formatOptions(sub, auto)}:${sub.metric}${grouping || other ? `{${grouping}}` : ''}${other ? `{${other}}` : ''}`;
}

/** The sub-query as an element of `queries` of a POST. @param {SubQuery} sub @param {string} auto */
export function toJson(sub, auto) {
  const query = { aggregator: sub.agg };
  if (sub.tsuids) query.tsuids = sub.tsuids.split(',').map((tsuid) => tsuid.trim());
  else query.metric = sub.metric;
  if (sub.ds) query.downsample = `${sub.interval === 'auto' ? auto : sub.interval}-${sub.fn}-${sub.fill}`;
  if (sub.rate) {
    query.rate = true;
    if (sub.counter) {
      query.rateOptions = { counter: true, dropResets: sub.drop };
      if (sub.max) query.rateOptions.counterMax = sub.max;
      if (sub.reset) query.rateOptions.resetValue = sub.reset;
    }
  }
  const tags = sub.tags.filter((tag) => tag.key && tag.value);
  if (tags.length) query.filters = tags.map(({ key, type, value, group }) => ({ type, tagk: key, filter: value, groupBy: group }));
  if (sub.explicit) query.explicitTags = true;
  if (sub.percentiles) query.percentiles = sub.percentiles.split(',').map(Number);
  return query;
}
