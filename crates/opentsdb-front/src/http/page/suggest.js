// Suggestions of names.

import { request, withParameters } from './api.js';

const SERIES = 1000; // Series of a metric that are looked at for its tags.
const WAIT = 3000;

/** Names that begin with a text. @param {'metrics' | 'tagk' | 'tagv'} type */
export const names = (type, text, signal, max = 40) => request(withParameters('/api/suggest', { type, q: text, max }), { signal });

/** @type {Map<string, Promise<{tags: Map<string, Set<string>>, complete: boolean}>>} */
const metrics = new Map();

/** The tags of a metric's first series. */
function tagsOf(metric) {
  let found = metrics.get(metric);
  if (!found) {
    const path = withParameters('/api/search/lookup', { m: metric, limit: SERIES });
    found = request(path, { signal: AbortSignal.timeout(WAIT) }).then(({ results }) => {
      const tags = new Map();
      for (const series of results) {
        for (const [key, value] of Object.entries(series.tags)) {
          if (!tags.has(key)) tags.set(key, new Set());
          tags.get(key).add(value);
        }
      }
      return { tags, complete: results.length < SERIES };
    });
    metrics.set(metric, found);
    found.catch(() => metrics.delete(metric));
    setTimeout(() => metrics.delete(metric), 60_000);
  }
  return found.catch(() => ({ tags: new Map(), complete: false }));
}

/** Names of a list that contain a text; those that begin with it first. */
function matching(all, text) {
  const lower = text.toLowerCase();
  const found = [...all].filter((name) => name.toLowerCase().includes(lower)).sort();
  return [...found.filter((name) => name.startsWith(text)), ...found.filter((name) => !name.startsWith(text))];
}

/** Tag keys of a metric, or of all. */
export async function tagKeys(metric, text, signal) {
  const { tags, complete } = metric ? await tagsOf(metric) : { tags: new Map(), complete: false };
  const near = matching(tags.keys(), text);
  return complete && near.length ? near : [...new Set([...near, ...(await names('tagk', text, signal))])];
}

/** Values of a tag of a metric; the last one of `a|b`. */
export async function tagValues(metric, key, text, signal) {
  const bar = text.lastIndexOf('|') + 1;
  const [before, typed] = [text.slice(0, bar), text.slice(bar)];
  const { tags, complete } = metric ? await tagsOf(metric) : { tags: new Map(), complete: false };
  const near = matching(tags.get(key) ?? [], typed === '*' ? '' : typed);
  const all = complete && near.length ? near : [...new Set([...near, ...(await names('tagv', typed, signal))])];
  return all.slice(0, 60).map((value) => before + value);
}
