// "Save": a view as PNG or SVG, its data as CSV.

import { fill, h, setAttribute } from "../dom.js";
import { selectedRequest } from "../model.js";
import { csvParts } from "./csv.js";
import { drawFigure, readInk, subjectOf } from "./figure.js";

/** @typedef {import("../store.js").Store} Store */

/**
 * One view that can be saved. Both parts are made when they are asked for, from what is on screen then; `figure` leaves out
 * `of`, which is the same for all views.
 * @typedef {object} Saveable
 * @property {string} view short name, for the file: "attention-wall"
 * @property {string} name for the menu: "Wall of heads"
 * @property {(ink: import("./figure.js").Ink) => Omit<import("./figure.js").Figure, "of">} figure
 * @property {() => import("./csv.js").Table} table
 */

/** Pictures are twice as fine as the drawing, up to what browsers' canvases hold. */
const FINENESS = 2;
const LONGEST_SIDE = 16_384;
const MOST_PIXELS = 2 ** 27;

/**
 * A button that opens a small menu: each view that there is to save, in three forms.
 * @param {Store} store
 * @param {() => Saveable[]} views what there is now; none where the panel shows nothing
 */
export function saveButton(store, views) {
  const menu = h("div", { class: "save-menu", popover: "auto", role: "group", "aria-label": "Save as" });
  const button = h("button", { type: "button", class: "save", "aria-expanded": "false", "aria-label": "Save", "data-tip": "Save as picture or as data" }, "Save");
  button.addEventListener("click", () => {
    if (!menu.togglePopover()) return;
    const box = button.getBoundingClientRect();
    Object.assign(menu.style, { top: `${box.bottom + 4}px`, left: `${Math.min(box.left, window.innerWidth - menu.offsetWidth - 6)}px` });
    menu.querySelector("button")?.focus();
  });
  menu.addEventListener("toggle", (event) => setAttribute(button, "aria-expanded", String(/** @type {ToggleEvent} */ (event).newState === "open")));
  menu.addEventListener("beforetoggle", (event) => {
    if (/** @type {ToggleEvent} */ (event).newState !== "open") return;
    const all = views();
    fill(menu, all.length ? all.map((view) => line(store, view, () => menu.hidePopover())) : h("p", { class: "muted" }, "There is nothing here to save."));
  });
  return h("span", { class: "save-place" }, button, menu);
}

/** @param {Store} store @param {Saveable} view @param {() => void} done */
function line(store, view, done) {
  const as = (/** @type {"png" | "svg" | "csv"} */ kind) =>
    h("button", { type: "button", "aria-label": `${view.name} as ${kind.toUpperCase()}`, onclick: () => {
      done();
      save(store, view, kind).catch((error) => store.set({ notice: `“${view.name}” could not be saved as ${kind.toUpperCase()}: ${error.message}` }));
    } }, kind.toUpperCase());
  return h("div", { class: "save-line" }, h("span", null, view.name), as("png"), as("svg"), as("csv"));
}

/** @param {Store} store @param {Saveable} view @param {"png" | "svg" | "csv"} kind */
async function save(store, view, kind) {
  const name = fileName(store.state.selection, view.view, kind);
  if (kind === "csv") {
    download(new Blob(csvParts(view.table()), { type: "text/csv;charset=utf-8" }), name);
    return;
  }
  const ink = readInk();
  const figure = drawFigure({ ...view.figure(ink), of: subjectOf(store.state, selectedRequest(store.state)) }, ink);
  const svg = new Blob([figure.svg], { type: "image/svg+xml" });
  download(kind === "svg" ? svg : await rasterised(svg, figure.width, figure.height), name);
}

/**
 * tokenwalk-RUN-REQUEST-POSITION-VIEW.KIND, of letters, digits, dots and dashes alone.
 * @param {import("../model.js").Selection} selection
 * @param {string} view
 * @param {string} kind
 */
export function fileName({ run, request, position }, view, kind) {
  const plain = (/** @type {string | number | null} */ part) => String(part ?? "none").replace(/[^\p{L}\p{N}._]+/gu, "-").replace(/^[-.]+|[-.]+$/g, "").slice(0, 60) || "none";
  return `tokenwalk-${plain(run)}-${plain(request)}-${plain(position)}-${plain(view)}.${kind}`;
}

/** How many pixels a unit of the drawing gets. @param {number} width @param {number} height */
export function fineness(width, height) {
  return Math.min(FINENESS, LONGEST_SIDE / Math.max(width, height), Math.sqrt(MOST_PIXELS / (width * height)));
}

/** @param {Blob} svg @param {number} width @param {number} height @returns {Promise<Blob>} */
async function rasterised(svg, width, height) {
  const url = URL.createObjectURL(svg);
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const ratio = fineness(width, height);
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    const png = await new Promise((/** @type {(blob: Blob | null) => void} */ resolve) => canvas.toBlob(resolve, "image/png"));
    if (!png) throw new Error(`this browser cannot make a picture of ${canvas.width} × ${canvas.height} pixels`);
    return png;
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** @param {Blob} blob @param {string} name */
function download(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
