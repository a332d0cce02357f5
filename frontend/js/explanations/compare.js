// Explanations of the compare panel: two requests on one token axis.

export const COMPARE = {
  compare: {
    name: "Compare",
    what: "Two requests, of one run or of two recordings, position by position: where their texts part, and where inside the model.",
    how: "Both are read from their own events; nothing is computed anew but lenses that a live server is asked for.",
    formula: "position p here beside position p there",
    careful: "After the first token that differs, the same position no longer means the same place in a sentence.",
  },
  "compare.guess": {
    name: "Best guesses",
    what: "What each of the two passes would say if this layer were the last.",
    how: "The logit lens of both, at the same position.",
    formula: "argmax of head(norm(residual after layer l)), of each",
    careful: "Early layers were never meant to be read by the head: that two odd guesses differ there says little.",
  },
  "compare.attention": {
    name: "Attention apart",
    what: "The share of attention that lies on other tokens in the other pass: 0 is the same, 100% is nothing in common.",
    how: "From the captured attention weights of both passes, averaged over the layer’s heads.",
    formula: "½ Σ over tokens k of |a[k] − b[k]|, a and b means over heads (total variation distance)",
    careful: "A mean over heads can hide that two heads have changed in opposite ways.",
  },
  "compare.residual": {
    name: "Residual apart",
    what: "How far the two residual streams are from one another after the layer.",
    how: "From the captured residuals of both, in the precision in which they were recorded.",
    formula: "‖a − b‖ ÷ max(‖a‖, ‖b‖); a bar ends at 100%, the number does not",
    careful: "A few large numbers of a residual can make most of its length: a small distance need not be a small difference in meaning.",
  },
};
