"""The paper's tables and figures: grids as plain data, results as lines, pages made from the lines."""
