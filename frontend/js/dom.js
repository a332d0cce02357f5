// Making elements. Text only ever becomes text: there is no way here to set markup from a string.

/**
 * @typedef {string | number | Node | null | undefined | false} Single
 * @typedef {Single | readonly Single[] | readonly (Single | readonly Single[])[]} Child
 * @typedef {Record<string, string | number | boolean | null | undefined | EventListener>} Properties
 */

/**
 * An element. `class`, `aria-…`, `data-…` and the like become attributes (true → "", false and null → none), functions
 * listen to the event that they are named after: `onclick`.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Properties | null} [properties]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

/** @param {Element} parent @param {readonly (Child | Child[])[]} children */
function append(parent, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(parent, /** @type {Child[]} */ (child));
    else if (child instanceof Node) parent.append(child);
    else if (child !== null && child !== undefined && child !== false) parent.append(String(child));
  }
}

/** Puts children in place of what an element held. @param {Element} element @param {...Child} children */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Writes text only where it differs: no layout, no announcement, for what stays the same. @param {Node} node @param {string} text */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {Element} element @param {string} name @param {string | null} value null removes it */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/**
 * The element with that id, which index.html must have.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id
 * @returns {T}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no element "${id}"`);
  return /** @type {T} */ (element);
}

/** Marks one of several buttons as the chosen one. @param {Iterable<HTMLElement>} buttons @param {string} value compared with data-value */
export function press(buttons, value) {
  for (const button of buttons) setAttribute(button, "aria-pressed", String(button.dataset.value === value));
}
