"""Multilinear algebra on plain tensors: operators on one axis, products along axes, factorisations, conjugate gradients."""

from pe_lightning.linalg.conjugate_gradients import LeastSquares, Minimum, conjugate_gradients, min_tolerance, optimality
from pe_lightning.linalg.factor import AxisFactor, eigh, factor_axes, factor_axis, largest_eigenvalue, ridge_response
from pe_lightning.linalg.operators import (
    Banded,
    Call,
    Dense,
    GridOperator,
    Identity,
    LinearMap,
    Operator,
    as_operator,
    contraction_order,
    encode_axis,
    full_precision,
    mode_product,
    mode_product_calls,
    mode_products,
    rowwise_products,
    without_autocast,
)
from pe_lightning.linalg.row_banded import RowBanded

__all__ = [
    "AxisFactor",
    "Banded",
    "Call",
    "Dense",
    "GridOperator",
    "Identity",
    "LeastSquares",
    "LinearMap",
    "Minimum",
    "Operator",
    "RowBanded",
    "as_operator",
    "conjugate_gradients",
    "contraction_order",
    "eigh",
    "encode_axis",
    "factor_axes",
    "factor_axis",
    "full_precision",
    "largest_eigenvalue",
    "min_tolerance",
    "mode_product",
    "mode_product_calls",
    "mode_products",
    "optimality",
    "ridge_response",
    "rowwise_products",
    "without_autocast",
]
