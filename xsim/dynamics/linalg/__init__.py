"""Linear algebra: sparse by the tree, dense over few dofs, unsymmetric, the derivative of an implicit equation."""
