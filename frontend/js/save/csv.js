// Tables as CSV (RFC 4180), safe to open in a spreadsheet: token text is hostile there too.

/** @typedef {string | number | boolean | null | undefined} Cell */

/**
 * @typedef {object} Table
 * @property {string[]} columns with their units
 * @property {Iterable<readonly Cell[]>} rows
 */

/** Rows whose text is joined before it goes into the file's parts. */
const BATCH = 4096;

/** A spreadsheet takes these for the beginning of a formula. */
const FORMULA = /^[=+\-@\t\r\n]/;

/** @param {Cell} value */
export function csvCell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (typeof value === "boolean") return String(value);
  const harmless = FORMULA.test(value) ? `'${value}` : value;
  // A space or a quote at either end is kept only inside quotes by many readers.
  return harmless !== value || /[",\r\n\u0000]|^\s|\s$/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/**
 * The table as parts of a file, a few thousand rows each: a whole one may be longer than a string can be.
 * @param {Table} table
 * @returns {string[]}
 */
export function csvParts({ columns, rows }) {
  // With the mark that tells spreadsheets that this is UTF-8.
  const parts = [`\ufeff${columns.map(csvCell).join(",")}\r\n`];
  /** @type {string[]} */
  let batch = [];
  const close = () => {
    if (batch.length) parts.push(`${batch.join("\r\n")}\r\n`);
    batch = [];
  };
  for (const row of rows) {
    batch.push(row.map(csvCell).join(","));
    if (batch.length === BATCH) close();
  }
  close();
  return parts;
}
