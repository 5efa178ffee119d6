"""A trained run over HTTP: predictions, explanations, files and a page to try it on."""
