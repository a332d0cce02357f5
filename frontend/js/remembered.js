// What this browser remembers of a person's choices. Storage can be forbidden or full: then a choice lasts as long as the page.

/** @param {string} what @returns {string | null} */
export function recall(what) {
  try {
    return localStorage.getItem(`tokenwalk.${what}`);
  } catch {
    return null;
  }
}

/** @param {string} what @param {string | null} value null forgets it */
export function remember(what, value) {
  try {
    if (value === null) localStorage.removeItem(`tokenwalk.${what}`);
    else localStorage.setItem(`tokenwalk.${what}`, value);
  } catch {
    // Then it is not remembered.
  }
}
