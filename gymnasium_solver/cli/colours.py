"""The colours of everything that is printed: a palette for the colour-blind (Okabe and Ito)."""

BLUE, ORANGE, GREEN, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
GREY = "bright_black"
