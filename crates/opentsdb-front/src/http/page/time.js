// Times of queries: relative, absolute in a time zone, and as numbers.
//
// The forms are those of OpenTSDB: `1h-ago`, `now`, `2012/09/05-12:00:00`, `1346846400`, `1346846400000`.

const UNIT_MS = { ms: 1, s: 1000, m: 60e3, h: 3600e3, d: 86400e3, w: 7 * 86400e3, n: 30 * 86400e3, y: 365 * 86400e3 };
const DATE = /^(\d{4})[/-](\d{1,2})[/-](\d{1,2})(?:[-T ](\d{1,2}):(\d{2})(?::(\d{2}))?)?$/;
const STEP = 900e3; // Offsets of zones change at multiples of a quarter of an hour.

/** The zone of the browser. */
export const LOCAL_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC';

/** Whether the browser knows a time zone. @param {string} zone */
export function isZone(zone) {
  try {
    return Boolean(new Intl.DateTimeFormat('en', { timeZone: zone }));
  } catch {
    return false;
  }
}

/** Milliseconds of a duration such as `90s`; null if the text is none. @param {string} text */
export function parseDuration(text) {
  const match = /^(\d+)(ms|[smhdwny])$/i.exec(text.trim());
  const ms = match ? Number(match[1]) * UNIT_MS[match[2].toLowerCase()] : 0;
  return ms > 0 && Number.isSafeInteger(ms) ? ms : null;
}

/** @type {Map<string, {format: Intl.DateTimeFormat, offsets: Map<number, number>}>} */
const zones = new Map();

/** Milliseconds by which the wall clock of a zone is ahead of UTC. */
function offset(ms, zone) {
  if (zone === 'UTC') return 0;
  let known = zones.get(zone);
  if (!known) {
    const format = new Intl.DateTimeFormat('en-US', {
      timeZone: zone, hourCycle: 'h23', year: 'numeric', month: 'numeric', day: 'numeric',
      hour: 'numeric', minute: 'numeric', second: 'numeric', era: 'short',
    });
    zones.set(zone, (known = { format, offsets: new Map() }));
  }
  const step = Math.floor(ms / STEP);
  let found = known.offsets.get(step);
  if (found === undefined) {
    const part = {};
    for (const { type, value } of known.format.formatToParts(step * STEP)) part[type] = value;
    found = Date.UTC(+part.year, part.month - 1, +part.day, +part.hour, +part.minute, +part.second) - step * STEP;
    if (known.offsets.size > 5000) known.offsets.clear();
    known.offsets.set(step, found);
  }
  return found;
}

/** A date whose UTC fields are the wall clock of the zone. @param {number} ms @param {string} zone */
export const wall = (ms, zone) => new Date(ms + offset(ms, zone));

/**
 * The instant at which the wall clock of a zone shows `wallMs`, a time as if in UTC. Of two such instants it is the later
 * one, and a time that the clock skips is as much later, as in OpenTSDB.
 */
export function fromWall(wallMs, zone) {
  const after = offset(wallMs + 86400e3, zone);
  return wallMs - (offset(wallMs - after, zone) === after ? after : offset(wallMs - 86400e3, zone));
}

const two = (number) => String(number).padStart(2, '0');

/** `2012/09/05-12:00:00`, OpenTSDB's form, with milliseconds if there are any. @param {number} ms @param {string} zone */
export function formatTime(ms, zone) {
  if (!Number.isFinite(ms)) return '';
  const date = wall(ms, zone);
  const day = `${date.getUTCFullYear()}/${two(date.getUTCMonth() + 1)}/${two(date.getUTCDate())}`;
  return `${day}-${two(date.getUTCHours())}:${two(date.getUTCMinutes())}:${two(date.getUTCSeconds())}`;
}

/** For people: `2012-09-05 12:00:00`, with milliseconds if there are any. @param {number} ms @param {string} zone */
export function showTime(ms, zone) {
  const millis = Math.floor(ms) % 1000;
  return formatTime(ms, zone).replace('-', ' ').replaceAll('/', '-') + (millis ? '.' + String(millis).padStart(3, '0') : '');
}

/** Milliseconds of an annotation's time, which may be in seconds. @param {number} time */
export const annotationMs = (time) => (time > 1e11 ? time : time * 1000);

/** Whether a text is relative to the current time. @param {string} text */
export const isRelative = (text) => /^(now|)$|[- ]ago$/i.test(text.trim());

/**
 * The instant of a text, in milliseconds; an empty text is now.
 * @param {string} text @param {number} now @param {string} zone
 */
export function parseTime(text, now, zone) {
  const trimmed = text.trim();
  if (trimmed === '' || /^now$/i.test(trimmed)) return now;
  const ago = /^(.*?)[- ]ago$/i.exec(trimmed);
  if (ago) {
    const duration = parseDuration(ago[1].replaceAll(' ', ''));
    if (duration === null) throw new Error(`“${ago[1]}” is not a duration. Write a number and a unit: 90s, 15m, 2h, 7d, 4w, 1y.`);
    return now - duration;
  }
  const number = /^(\d+)(ms)?$/.exec(trimmed);
  if (number) return Number(number[1]) * (number[2] || number[1].length > 10 ? 1 : 1000);
  const fraction = /^(\d{1,10})\.(\d{3})$/.exec(trimmed);
  if (fraction) return Number(fraction[1]) * 1000 + Number(fraction[2]);
  const date = DATE.exec(trimmed);
  if (!date) throw new Error(`“${trimmed}” is not a time. Examples: 1h-ago, 2012/09/05-12:00:00, 1346846400.`);
  const [year, month, day, hour, minute, second] = date.slice(1).map((field) => Number(field ?? 0));
  return fromWall(Date.UTC(year, month - 1, day, hour, minute, second), zone);
}

/**
 * The range of two texts, in milliseconds. An error has the field that it is about.
 * @param {{start: string, end: string, tz: string}} range @param {number} now
 */
export function parseRange({ start, end, tz }, now) {
  const zone = tz || 'UTC';
  const read = (field, text) => {
    try {
      return parseTime(text, now, zone);
    } catch (error) {
      throw Object.assign(error, { field });
    }
  };
  if (!start.trim()) throw Object.assign(new Error('Give a start, for example 1h-ago.'), { field: 'start' });
  const range = { from: read('start', start), to: read('end', end) };
  if (range.to <= range.from) throw Object.assign(new Error('The end must be after the start.'), { field: 'end' });
  return range;
}

const NICE = ['1s', '5s', '10s', '15s', '30s', '1m', '2m', '5m', '10m', '15m', '30m', '1h', '2h', '3h', '6h', '12h', '1d', '1w'];

/** The smallest usual interval with which a range has at most `points` points. @param {number} range @param {number} points */
export function niceInterval(range, points) {
  return NICE.find((text) => range / parseDuration(text) <= points) ?? '1w';
}
