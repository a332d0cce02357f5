/**
 * Plotly: loaded once, when a panel first needs it, from this server; and told what this page asks of it.
 */

/** @typedef {any} Plotly  plotly.js 4 ships no types with its bundle */

/** Beside this page's own files, wherever they are served. */
const SOURCE = new URL("../plotly.min.js", import.meta.url).href;

/** @type {Promise<Plotly> | null} */
let loading = null;

/**
 * @returns {Promise<Plotly>}
 * @throws {Error} when the script cannot be had; a later call tries again
 */
export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = SOURCE;
    script.async = true;
    script.onload = () => {
      const { Plotly } = /** @type {any} */ (globalThis);
      if (Plotly) resolve(Plotly);
      else reject(new Error(`${SOURCE} did not define Plotly`));
    };
    script.onerror = () => {
      script.remove();
      loading = null;
      reject(new Error(`${SOURCE} could not be loaded`));
    };
    document.head.append(script);
  });
  return loading;
}

/** Nothing leaves the machine, no advertising, and only the tools that make sense on a matrix. */
export const PLOTLY_CONFIG = {
  displaylogo: false,
  showSendToCloud: false,
  showEditInChartStudio: false,
  plotlyServerURL: "",
  displayModeBar: false,
  doubleClick: "reset",
  showTips: false,
};

/**
 * Text for an axis or a title. Plotly reads HTML-like tags in text (`<b>`, `<a href=…>`, `<br>`) and entities, and a token may
 * be any of those; between dollars it looks for a formula. The text is shown as written instead.
 * @param {string} text
 */
export function plotlyText(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("$", "&#36;");
}

/** @param {Float32Array} values row after row @param {number} rows @param {number} columns */
export function plotlyMatrix(values, rows, columns) {
  return { dtype: "f4", bdata: values.buffer, shape: `${rows}, ${columns}` };
}
