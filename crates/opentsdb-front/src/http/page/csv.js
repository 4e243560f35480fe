// CSV of series, with quotes where they are needed (RFC 4180).

import { showTime } from './time.js';

/** A field of text. A spreadsheet takes a leading `=`, `+`, `-` or `@` for a formula; an apostrophe makes it text. */
export function field(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return /[",\r\n]|^\s|\s$/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** A line for each point: name, tags, milliseconds, time, value. A gap has no value. */
export function toCsv(series, zone) {
  const lines = ['metric,tags,timestamp_ms,time,value'];
  for (const { metric, tags, times, values } of series) {
    const head = field(metric) + ',' + field(Object.entries(tags).map(([key, value]) => `${key}=${value}`).join(' ')) + ',';
    for (let i = 0; i < times.length; i++) {
      lines.push(`${head}${times[i]},${showTime(times[i], zone)},${Number.isNaN(values[i]) ? '' : values[i]}`);
    }
  }
  return lines.join('\r\n') + '\r\n';
}
