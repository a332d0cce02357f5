// A drawing of rectangles, lines and text, written as SVG that any program opens: no style sheet, no HTML inside, no script.

/** @typedef {{fill?: string, stroke?: string, width?: number, opacity?: number, radius?: number, dash?: string}} Paint */
/** @typedef {{size?: number, fill?: string, weight?: number, anchor?: "start" | "middle" | "end", mono?: boolean, turned?: boolean}} Lettering */

const SANS = "Inter, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Noto Sans', sans-serif";
const MONO = "'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono', monospace";

/** What XML 1.0 cannot hold even escaped. */
const UNLAWFUL = /[^\t\n\r\u{20}-\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]/gu;

/** @param {string} text for an attribute or as text */
export function escapeXml(text) {
  return text
    .replace(UNLAWFUL, "\ufffd")
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");
}

/** About how wide a text is, in pixels: fonts differ, so room is left. @param {string} text @param {number} size @param {boolean} [mono] */
export function textWidth(text, size, mono = false) {
  let ems = 0;
  for (const character of text) ems += /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1faff}]/u.test(character) ? 1.05 : mono ? 0.605 : /[ilj.,:;'|! ]/.test(character) ? 0.3 : /[mwMW@%]/.test(character) ? 0.88 : 0.56;
  return ems * size;
}

/** The text, or its beginning with “…”, so that it fits. @param {string} text @param {number} width @param {number} size @param {boolean} [mono] */
export function fitted(text, width, size, mono = false) {
  if (textWidth(text, size, mono) <= width) return text;
  let kept = "";
  for (const character of text) {
    if (textWidth(`${kept}${character}…`, size, mono) > width) break;
    kept += character;
  }
  return `${kept}…`;
}

/** Lines of words no wider than that. @param {string} text @param {number} width @param {number} size @returns {string[]} */
export function wrapped(text, width, size) {
  /** @type {string[]} */
  const lines = [];
  let line = "";
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const longer = line ? `${line} ${word}` : word;
    if (line && textWidth(longer, size) > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  if (line) lines.push(line);
  return lines;
}

/** Two digits after the point are finer than any screen. @param {number} n */
const at = (n) => String(Math.round(n * 100) / 100);

export class Drawing {
  /** @param {number} width pixels @param {number} height @param {string} background */
  constructor(width, height, background) {
    this.width = Math.ceil(width);
    this.height = Math.ceil(height);
    this.background = background;
    /** @type {string[]} */
    this.parts = [];
    this.hatched = false;
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height @param {Paint} paint */
  rect(x, y, width, height, { fill = "none", stroke, width: line = 1, opacity, radius, dash }) {
    if (!(width > 0) || !(height > 0)) return;
    this.parts.push(
      `<rect x="${at(x)}" y="${at(y)}" width="${at(width)}" height="${at(height)}" fill="${escapeXml(fill)}"${stroke ? ` stroke="${escapeXml(stroke)}" stroke-width="${at(line)}"` : ""}${opacity === undefined ? "" : ` opacity="${at(opacity)}"`}${radius ? ` rx="${at(radius)}"` : ""}${dash ? ` stroke-dasharray="${dash}"` : ""}/>`,
    );
  }

  /** @param {number} x @param {number} y @param {number} x2 @param {number} y2 @param {string} stroke @param {number} [width] */
  line(x, y, x2, y2, stroke, width = 1) {
    this.parts.push(`<line x1="${at(x)}" y1="${at(y)}" x2="${at(x2)}" y2="${at(y2)}" stroke="${escapeXml(stroke)}" stroke-width="${at(width)}"/>`);
  }

  /** @param {[number, number][]} points @param {string} fill */
  polygon(points, fill) {
    this.parts.push(`<polygon points="${points.map(([x, y]) => `${at(x)},${at(y)}`).join(" ")}" fill="${escapeXml(fill)}"/>`);
  }

  /** @param {number} x @param {number} y of the base line @param {string} text @param {Lettering} lettering */
  text(x, y, text, { size = 11, fill = "#000", weight, anchor, mono, turned }) {
    if (text === "") return;
    this.parts.push(
      `<text x="${at(x)}" y="${at(y)}" font-size="${at(size)}" fill="${escapeXml(fill)}"${weight ? ` font-weight="${weight}"` : ""}${anchor && anchor !== "start" ? ` text-anchor="${anchor}"` : ""}${mono ? ` font-family="${MONO}"` : ""}${turned ? ` transform="rotate(-90 ${at(x)} ${at(y)})"` : ""} xml:space="preserve">${escapeXml(text)}</text>`,
    );
  }

  /** Where nothing was captured. @param {number} x @param {number} y @param {number} width @param {number} height */
  hatch(x, y, width, height) {
    this.hatched = true;
    this.rect(x, y, width, height, { fill: "url(#hatch)" });
  }

  /**
   * A grid of cells in few colours: neighbours in a row that share one are one rectangle, and all of a colour are one path.
   * @param {number} x
   * @param {number} y
   * @param {number} columns
   * @param {number} rows
   * @param {number} width of a cell
   * @param {number} height
   * @param {(column: number, row: number) => string | null} colour null: nothing is drawn
   */
  cells(x, y, columns, rows, width, height, colour) {
    /** @type {Map<string, string[]>} */
    const paths = new Map();
    for (let row = 0; row < rows; row += 1) {
      for (let from = 0; from < columns; ) {
        const fill = colour(from, row);
        let to = from + 1;
        while (to < columns && colour(to, row) === fill) to += 1;
        if (fill !== null) {
          let path = paths.get(fill);
          if (!path) paths.set(fill, (path = []));
          path.push(`M${at(x + from * width)} ${at(y + row * height)}h${at((to - from) * width)}v${at(height)}h${at((from - to) * width)}z`);
        }
        from = to;
      }
    }
    const all = [...paths].map(([fill, path]) => `<path fill="${escapeXml(fill)}" d="${path.join("")}"/>`);
    if (all.length) this.parts.push(`<g shape-rendering="crispEdges">${all.join("")}</g>`);
  }

  /** @param {string} title for those who cannot see it @param {string} hatching colour */
  svg(title, hatching) {
    const pattern = this.hatched
      ? `<defs><pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><line x1="0" y1="0" x2="0" y2="4" stroke="${escapeXml(hatching)}" stroke-width="1.5"/></pattern></defs>`
      : "";
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" font-family="${SANS}" role="img"><title>${escapeXml(title)}</title>${pattern}` +
      `<rect width="${this.width}" height="${this.height}" fill="${escapeXml(this.background)}"/>${this.parts.join("")}</svg>`
    );
  }
}
