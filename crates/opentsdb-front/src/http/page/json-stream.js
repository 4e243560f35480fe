// Parses the elements of a JSON array as its text arrives.

const QUOTE = 34, COMMA = 44, BACKSLASH = 92, OPEN_ARRAY = 91, CLOSE_ARRAY = 93, OPEN_OBJECT = 123, CLOSE_OBJECT = 125;
const isSpace = (code) => code === 32 || code === 10 || code === 13 || code === 9;

/** Reads a top-level array in pieces. Each complete element is parsed by `JSON.parse` and returned at once. */
export class ArrayStream {
  #pieces = []; // Text of the element that is not complete.
  #state = 'before'; // before the array, in it, after it
  #depth = 0; // Brackets within the element.
  #inString = false;
  #escaped = false;
  #count = 0;
  #afterComma = false;

  /** The elements that a piece of text completes. @param {string} text */
  push(text) {
    const elements = [];
    let from = 0;
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i);
      if (this.#inString) {
        if (this.#escaped) this.#escaped = false;
        else if (code === BACKSLASH) this.#escaped = true;
        else if (code === QUOTE) this.#inString = false;
        continue;
      }
      if (this.#state !== 'in') {
        if (isSpace(code)) continue;
        if (this.#state === 'after' || code !== OPEN_ARRAY) throw new SyntaxError('the response is no JSON array');
        this.#state = 'in';
        from = i + 1;
      } else if (code === QUOTE) {
        this.#inString = true;
      } else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
        this.#depth++;
      } else if (this.#depth > 0 && (code === CLOSE_OBJECT || code === CLOSE_ARRAY)) {
        this.#depth--;
      } else if (this.#depth === 0 && (code === COMMA || code === CLOSE_ARRAY)) {
        this.#pieces.push(text.slice(from, i));
        from = i + 1;
        this.#take(elements, code === CLOSE_ARRAY);
        if (code === CLOSE_ARRAY) this.#state = 'after';
      }
    }
    if (this.#state === 'in' && from < text.length) this.#pieces.push(text.slice(from));
    return elements;
  }

  #take(elements, isLast) {
    const text = this.#pieces.join('');
    this.#pieces = [];
    const isEmpty = text.trim() === '';
    if (isEmpty && isLast && this.#count === 0 && !this.#afterComma) return;
    elements.push(JSON.parse(text));
    this.#count++;
    this.#afterComma = true;
  }

  /** Ends the text; an array that is not complete is an error. */
  end() {
    if (this.#state !== 'after') throw new SyntaxError('the response ended before the array was complete');
  }
}
