// Runs the sub-queries and expressions of a state.
//
// Each is a request of its own: its series are known to be its own, its error leaves the others as they are, and all
// run at the same time. The range is computed once, so that all have the same.

import { isAbort, stream, withParameters } from './api.js';
import { toCall } from './expression.js';
import { toJson } from './metric-text.js';

/** Series that the page draws, at most; a browser slows down with more. */
export const MAX_SERIES = 5000;

/** A series of an element of the response. */
function toSeries(element, place) {
  const points = element.dps ?? [];
  const times = new Float64Array(points.length), values = new Float64Array(points.length);
  for (let i = 0; i < points.length; i++) {
    const [time, value] = points[i];
    times[i] = time;
    // A gap is null or the text NaN; infinities are texts too.
    values[i] = value === null ? NaN : Number(value);
  }
  const { metric = '', tags = {}, aggregateTags = [], annotations = [], globalAnnotations = [] } = element;
  return { place, metric, tags, aggregateTags, annotations, globalAnnotations, times, values };
}

/** The name of a series: its metric and tags. */
export function seriesName({ metric, tags }) {
  const texts = Object.entries(tags).map(([key, value]) => `${key}=${value}`).sort();
  return texts.length ? `${metric}{${texts.join(', ')}}` : metric;
}

/**
 * Runs a state. `found` gets each series as it arrives; the result has an error for each place that failed. Places count
 * the sub-queries first and then the expressions.
 * @param {ReturnType<import('./link.js').newState>} state
 * @param {{from: number, to: number, auto: string, signal: AbortSignal, found: (series: any) => void}} options
 */
export async function run(state, { from, to, auto, signal, found }) {
  const errors = [];
  let count = 0;
  const limit = new AbortController();
  const both = AbortSignal.any([signal, limit.signal]);
  const element = (place) => (item) => {
    if (item.dps === undefined) return; // A summary of statistics.
    if (++count > MAX_SERIES) {
      limit.abort();
      return;
    }
    found(toSeries(item, place));
  };
  const common = { start: from, end: to, msResolution: true };
  const jobs = [];
  const add = (place, job) => jobs.push(job().catch((error) => {
    if (!isAbort(error)) errors.push({ place, error });
    else if (count > MAX_SERIES) errors.push({ place, error: new Error(`More than ${MAX_SERIES} series: the others are left out. Filter or aggregate them.`) });
  }));
  state.subs.forEach((sub, place) => {
    if (sub.off || !(sub.metric || sub.tsuids)) return;
    const body = { ...common, queries: [toJson(sub, auto)] };
    if (state.global_annotations) body.globalAnnotations = true;
    if (state.no_annotations) body.noAnnotations = true;
    if (sub.ds && /c$/.test(sub.interval) && state.tz) body.timezone = state.tz;
    add(place, () => stream('/api/query?arrays', { body, signal: both }, element(place)));
  });
  state.exprs.forEach((expression, index) => {
    if (expression.off || !expression.text.trim()) return;
    const place = state.subs.length + index;
    add(place, async () => {
      const exp = toCall(expression.text, state.subs, auto);
      const path = withParameters('/api/query/gexp', { start: `${from}ms`, end: `${to}ms`, exp, ms: '', arrays: '' });
      await stream(path, { signal: both }, element(place));
    });
  });
  await Promise.all(jobs);
  return errors;
}
