// Explanations of the lens panel.

export const LENS = {
  lens: {
    name: "Logit lens",
    what: "What the model would say next if it ended after each layer: layers down, positions across.",
    how: "The final norm and output head applied to the captured residual, on request or baked into the recording.",
    formula: "softmax(head(norm(x after layer l at position p)))",
    careful: "Early layers speak another language than the head reads; other lenses (tuned ones) show sense earlier.",
  },
  "lens.shade": {
    name: "Colour of a cell",
    what: "How sure the layer is of its best guess, or how high it ranks the token that came.",
    how: "From the lens’s probabilities and ranks over the whole vocabulary.",
    formula: "probability: linear from 0 to 1; rank: 1 − ln(rank) ÷ ln(vocabulary)",
    careful: "By probability, a layer that is sure of a wrong word is as bright as one that is right.",
  },
  "lens.column": {
    name: "The chosen column",
    what: "One position’s guesses after the chosen layer, and from where on the token that came leads.",
    how: "The most probable tokens of the lens there; the token that came is added with its rank where it is not among them.",
    formula: "leads from the first layer after which its rank is 1 up to the last",
    careful: "A token can lead, lose the lead and win it again: only the last stretch is told in words.",
  },
};
