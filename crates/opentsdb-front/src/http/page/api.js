// Requests to the server. The token is kept in memory only.

import { ArrayStream } from './json-stream.js';

let token = '';

/** Sets the token of all later requests. @param {string} text */
export function setToken(text) {
  token = text.trim();
}

/** An error of the server, with its text, or of the connection (status 0). */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The text of an error: OpenTSDB's envelope, or the body. The message may have `<code>`. */
async function errorOf(response) {
  const text = await response.text().catch(() => '');
  try {
    const { message, details } = JSON.parse(text).error;
    const plain = String(message).replace(/<\/?code>/g, '`');
    return new ApiError(response.status, details && details !== message ? `${plain} (${details})` : plain);
  } catch {
    return new ApiError(response.status, text.slice(0, 300) || `the server responded ${response.status} ${response.statusText}`);
  }
}

/** @param {string} path @param {{method?: string, body?: any, signal?: AbortSignal}} [options] */
async function send(path, { method, body, signal } = {}) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const init = { method: method ?? (body === undefined ? 'GET' : 'POST'), headers, signal, credentials: 'same-origin' };
  if (body !== undefined) init.body = JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (error.name === 'AbortError' || error.name === 'TimeoutError') throw error;
    throw new ApiError(0, 'The server does not respond.');
  }
  if (response.ok || response.status === 304) return response;
  const error = await errorOf(response);
  if (error.status === 401 || error.status === 403) {
    window.dispatchEvent(new CustomEvent('refused', { detail: error.message }));
  }
  throw error;
}

/** The JSON of a response; null if it has no body. */
export async function request(path, options) {
  const response = await send(path, options);
  const text = response.status === 204 || response.status === 304 ? '' : await response.text();
  return text ? JSON.parse(text) : null;
}

/** Calls `element` with each element of a response that is an array, while it arrives. */
export async function stream(path, options, element) {
  const response = await send(path, options);
  const parser = new ArrayStream();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    for (const item of parser.push(value)) element(item);
  }
  parser.end();
}

/** A path with parameters. @param {string} path @param {Record<string, any>} parameters */
export const withParameters = (path, parameters) => `${path}?${new URLSearchParams(parameters)}`;

/** Whether an error is a request that was cancelled. */
export const isAbort = (error) => error?.name === 'AbortError';
